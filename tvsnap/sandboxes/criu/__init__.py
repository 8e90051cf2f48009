"""CRIU, and what must be true of processes for it to bring them back as they were. Ids are those of the host."""
