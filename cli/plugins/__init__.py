"""The verbs of what plugs in: each is about a package of `tvsnap.plugins`, or a screen, which the core does without."""
