"""Keeps states by snapshots, chooses them, and evicts the least useful ones."""
