"""The environment `python`: a persistent interpreter, besides the tools of a terminal."""
