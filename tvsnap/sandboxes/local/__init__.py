"""Sandboxes in namespaces on this machine: overlay roots on btrfs, live processes checkpointed by CRIU."""

from tvsnap.sandboxes.local.backend import LocalBackend

__all__ = ["LocalBackend"]
