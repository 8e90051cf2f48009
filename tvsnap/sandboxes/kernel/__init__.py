"""Access to processes and files by the kernel's interfaces: /proc, descriptors of others, namespaces, bpf(2)."""
