"""What writes an agent's next turn: a model in this process, or a server."""

from tvsnap.plugins.training.generation import Generator, ModelGenerator, ServerGenerator

__all__ = ["Generator", "ModelGenerator", "ServerGenerator"]
