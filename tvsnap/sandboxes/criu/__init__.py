"""CRIU, and what must be true of processes for it to bring them back as they were. Process ids are those of the host."""
