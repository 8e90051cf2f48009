"""What `make bench` measures: how long calls, checkpoints and forks take here, beside what they must cost at least."""
