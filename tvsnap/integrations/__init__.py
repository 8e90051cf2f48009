"""Plug-ins: tvsnap in other projects' harnesses, one module each."""
