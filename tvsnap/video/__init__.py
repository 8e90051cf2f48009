"""Videos: an environment whose tools look at long videos, and the models that these tools ask (`tvsnap[video]`)."""

from tvsnap.plugins.video import (
    Answer,
    Captioner,
    Clip,
    Embedder,
    Endpoint,
    EndpointEmbedder,
    InSandbox,
    Model,
    Models,
    PictureEmbedder,
    Prompt,
    Vectors,
    VideoEnvironment,
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
