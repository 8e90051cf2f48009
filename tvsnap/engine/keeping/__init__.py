"""Which states are kept by snapshots, and for how long."""
