"""What the kernel tells of processes and files, and lends of them."""
