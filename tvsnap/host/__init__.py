"""What all layers use of this machine: the data directory, processes, retries, compiled programs, the engine."""
