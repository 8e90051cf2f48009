"""How an image is built."""
