"""Types of caches here and at a server: code that takes `AnyCache` or `AnyAsyncCache` works with a `Client`, too."""

from tvsnap.plugins.client.protocols import (
    AnyAsyncCache,
    AnyAsyncRollout,
    AnyAsyncSandbox,
    AnyCache,
    AnyGraph,
    AnyImages,
    AnyRollout,
    AnySandbox,
)

__all__ = [
    "AnyAsyncCache",
    "AnyAsyncRollout",
    "AnyAsyncSandbox",
    "AnyCache",
    "AnyGraph",
    "AnyImages",
    "AnyRollout",
    "AnySandbox",
]
