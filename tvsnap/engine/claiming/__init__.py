"""Calls that are being made: one rollout executes them, and others wait for it, or not."""
