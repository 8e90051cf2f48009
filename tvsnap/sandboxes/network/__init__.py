"""The way out of a sandbox: a relay outside that takes all its connections, and decides which of them go on.

No packet leaves a sandbox. All addresses lead to its own loopback, where a socket that is held outside takes what is
not for the sandbox itself: so nothing depends on the host's interfaces, firewall or routes, and nothing is left there.
"""
