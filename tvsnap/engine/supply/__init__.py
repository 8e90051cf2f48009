"""Provides sandboxes in the states in which they are needed."""
