"""The execution of a call in a sandbox."""
