"""Executes calls in sandboxes."""
