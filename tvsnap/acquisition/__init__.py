"""A sandbox that stands at a state: kept, forked ahead, forked, or rebuilt by making calls again."""
