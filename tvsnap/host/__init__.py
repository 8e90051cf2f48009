"""The parts of this machine that all layers use: the data directory, processes, retries, compiled programs."""
