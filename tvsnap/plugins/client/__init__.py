"""Clients of a server, with the methods of `Cache` and `AsyncCache`. Pure Python: no root, no compiled code."""
