"""What is seen of a sandbox's processes from outside, by /proc and descriptors. Process ids are those of the host."""
