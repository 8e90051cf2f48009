"""Sandboxes as containers of a Docker Engine."""

from tvsnap.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
