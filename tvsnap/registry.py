"""States that travel: pushes images, calls and snapshots to an object store, and pulls them from there."""

from tvsnap.plugins.object_store import ObjectStore, Pulled, Pushed, StoredTasks, pull, push

__all__ = ["ObjectStore", "Pulled", "Pushed", "StoredTasks", "pull", "push"]
