"""Real programs, each started as people start it, called, snapshotted, forked twice and called again."""
