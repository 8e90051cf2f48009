"""Descriptions of images: image.yaml, Dockerfiles, Compose files, task folders."""
