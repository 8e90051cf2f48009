"""What is seen of a sandbox from outside: its files and processes, and what may happen in it by itself."""
