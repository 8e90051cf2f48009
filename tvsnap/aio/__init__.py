"""The awaitable twins of `Cache`, `Rollout`, `Sandbox` and `ImageStore`: a hit never leaves the event loop."""

from tvsnap.client.async_client import AsyncClient, connect

__all__ = ["AsyncClient", "connect"]
