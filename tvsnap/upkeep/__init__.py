"""Tasks besides rollouts: checks of recorded calls, garbage collection, checks of this machine."""
