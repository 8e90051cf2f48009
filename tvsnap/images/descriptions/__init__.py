"""What describes an image: image.yaml, Dockerfiles, Compose files, task folders."""
