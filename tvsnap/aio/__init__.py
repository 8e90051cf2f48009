"""The awaitable twins of `Cache`, `Rollout`, `Sandbox` and `ImageStore`: a hit never leaves the event loop."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap.plugins.client.async_client import AsyncClient, connect

__all__ = ["AsyncClient", "connect"]

if not TYPE_CHECKING:  # the client plugs in: it is imported when it is first used

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from tvsnap.plugins.client import async_client

        return getattr(async_client, name)
