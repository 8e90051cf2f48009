"""The program that runs inside a sandbox, by the image's own Python: it decodes videos and keeps what is in them.

It imports nothing of tvsnap: it is packed into one file, which is copied into sandboxes.
"""
