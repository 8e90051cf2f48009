"""The databases of images: their keys in descriptions, and how they are loaded when an image is built."""
