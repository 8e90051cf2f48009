"""Finds out what a call led to, and records it."""
