"""What CRIU does not restore: noted while the processes are frozen, and brought back before any runs in a fork."""
