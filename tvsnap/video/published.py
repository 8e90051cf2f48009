"""Calls of the texts that TVCache's published agent writes."""

from tvsnap.plugins.video.published import call_of

__all__ = ["call_of"]
