"""Looks at a sandbox from outside: its files and processes, and events that may happen in it by themselves."""
