"""Sandboxes as containers of a Docker Engine."""

from tvsnap.plugins.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
