"""One graph for many hosts: each keeps its own file, and calls are exchanged through a PostgreSQL database."""

from tvsnap.graph.shared.graph import SharedGraph
from tvsnap.graph.shared.postgres import Exchanged

__all__ = ["Exchanged", "SharedGraph"]
