"""The cache of a server, its rollouts and its sandboxes, with blocking and with awaited methods."""

from tvsnap.plugins.client.async_client import AsyncClient, AsyncRemoteRollout, AsyncRemoteSandbox
from tvsnap.plugins.client.client import Client, RemoteRollout, RemoteSandbox, connect
from tvsnap.plugins.client.events import Event
from tvsnap.plugins.client.terminals import Terminal

__all__ = [
    "AsyncClient",
    "AsyncRemoteRollout",
    "AsyncRemoteSandbox",
    "Client",
    "Event",
    "RemoteRollout",
    "RemoteSandbox",
    "Terminal",
    "connect",
]
