"""What TVCache's clients ask for over HTTP: calls that they execute themselves, kept in the same graph as all others.

The interface is that of the server which the authors of the TVCache paper (arXiv 2602.10986) have published.
"""
