"""The databases of images: what descriptions say of them, and how they are loaded when an image is built."""
