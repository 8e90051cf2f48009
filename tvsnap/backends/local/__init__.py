"""Sandboxes in namespaces on this machine: overlay roots on btrfs, live processes checkpointed by CRIU."""

from tvsnap.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
