"""Properties that hold for random histories of tool calls."""
