"""Questions in EgoSchema's format."""

from tvsnap.plugins.video.egoschema import Question, image_of, read_questions

__all__ = ["Question", "image_of", "read_questions"]
