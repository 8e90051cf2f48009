"""Repairs of CRIU's restore: properties that are noted of frozen processes, and brought back before a fork runs."""
