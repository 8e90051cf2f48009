"""States that travel: pushes images, calls and snapshots to an object store, and pulls them from there."""

from tvsnap.plugins.object_store.following import StoredTasks
from tvsnap.plugins.object_store.pull import Pulled, pull
from tvsnap.plugins.object_store.push import Pushed, push
from tvsnap.plugins.object_store.store import ObjectStore

__all__ = ["ObjectStore", "Pulled", "Pushed", "StoredTasks", "pull", "push"]
