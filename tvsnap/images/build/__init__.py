"""The build of an image."""
