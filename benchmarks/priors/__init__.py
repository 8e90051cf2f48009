"""What `tvsnap.priors` is worth on small tasks: `python -m benchmarks.priors`.

It needs packages that nothing else of tvsnap does, and says which of them are missing.
"""
