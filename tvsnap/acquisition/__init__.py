"""A sandbox that stands at a state: kept, forked ahead, forked, or made by replaying calls."""
