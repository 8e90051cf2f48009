"""States that travel: pushes images, calls and snapshots to an object store, and pulls them from there."""

from tvsnap.registry.following import StoredTasks
from tvsnap.registry.pull import Pulled, pull
from tvsnap.registry.push import Pushed, push
from tvsnap.registry.store import ObjectStore

__all__ = ["ObjectStore", "Pulled", "Pushed", "StoredTasks", "pull", "push"]
