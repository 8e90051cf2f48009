"""The way out of a sandbox: a relay outside accepts all its connections, and decides which of them are made.

No packet leaves a sandbox. All addresses lead to its own loopback device; there, a socket that is held outside accepts
everything that is not for the sandbox itself. So the host's interfaces, firewall and routes do not matter or change.
"""
