"""Clients of a server: what `Cache` and `AsyncCache` give, from elsewhere. Pure Python: no root, no compiled code."""
