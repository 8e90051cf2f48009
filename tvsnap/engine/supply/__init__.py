"""Sandboxes that stand in the state where one is needed."""
