"""The command line: one file per verb, named after it or, for larger verbs, with its name as prefix."""
