"""`tvsnap proxy`: a cache in front of an OpenAI-compatible server (`pip install 'tvsnap[proxy]'`)."""
