"""Types of caches here and at a server: code that takes `AnyCache` or `AnyAsyncCache` works with a `Client`, too."""

from __future__ import annotations

from tvsnap.aio.cache import AsyncCache
from tvsnap.aio.rollout import AsyncRollout
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.cache import Cache
from tvsnap.graph import Graph
from tvsnap.images import ImageStore
from tvsnap.plugins.client.async_client import AsyncClient, AsyncRemoteRollout, AsyncRemoteSandbox
from tvsnap.plugins.client.client import Client, RemoteRollout, RemoteSandbox
from tvsnap.plugins.client.images_and_graph import RemoteGraph, RemoteImages
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.protocol import Sandbox

AnyCache = Cache | Client
AnyRollout = Rollout | RemoteRollout
AnySandbox = Sandbox | RemoteSandbox
AnyGraph = Graph | RemoteGraph
AnyImages = ImageStore | RemoteImages
AnyAsyncCache = AsyncCache | AsyncClient
AnyAsyncRollout = AsyncRollout | AsyncRemoteRollout
AnyAsyncSandbox = AsyncSandbox | AsyncRemoteSandbox
