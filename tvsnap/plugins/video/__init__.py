"""Videos: an environment whose tools look at long videos, and the models that these tools ask."""

from tvsnap.plugins.video.endpoint import Endpoint, EndpointEmbedder
from tvsnap.plugins.video.environment import VideoEnvironment
from tvsnap.plugins.video.local import Captioner, Clip
from tvsnap.plugins.video.models import (
    Answer,
    Embedder,
    InSandbox,
    Model,
    Models,
    PictureEmbedder,
    Prompt,
    Vectors,
    WordLlama,
)

__all__ = [
    "Answer",
    "Captioner",
    "Clip",
    "Embedder",
    "Endpoint",
    "EndpointEmbedder",
    "InSandbox",
    "Model",
    "Models",
    "PictureEmbedder",
    "Prompt",
    "Vectors",
    "VideoEnvironment",
    "WordLlama",
]
