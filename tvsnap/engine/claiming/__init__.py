"""Calls that are being made: one rollout executes each, and others may wait for its result."""
