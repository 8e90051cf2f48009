"""Sandboxes as containers of a Docker Engine."""

from tvsnap.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
