"""The way out of a sandbox: a relay outside accepts all its connections, and decides which of them are made.

No packet leaves a sandbox. All addresses lead to its own loopback device, where a socket that is held outside accepts
what is not for the sandbox itself. So nothing depends on the host's interfaces, firewall or routes, or changes them.
"""
