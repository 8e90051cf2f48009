"""Sandboxes as containers of a Docker Engine."""

from tvsnap.sandboxes.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
