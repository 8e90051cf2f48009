"""Videos of which everything is known, and questions about them."""

from tvsnap.plugins.video.samples import Scene, Story, make, story

__all__ = ["Scene", "Story", "make", "story"]
