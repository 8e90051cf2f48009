"""One graph for many hosts: each keeps its own file, and calls are exchanged through a PostgreSQL database."""

from tvsnap.plugins.shared_graph.graph import SharedGraph
from tvsnap.plugins.shared_graph.postgres import Exchanged

__all__ = ["Exchanged", "SharedGraph"]
