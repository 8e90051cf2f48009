"""Runs a proxy until it is told to stop."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, cast

import uvicorn

from tvsnap.plugins.proxy.app import Proxy, make_app
from tvsnap.plugins.server.http import AtMost
from tvsnap.plugins.server.patience import Patient
from tvsnap.plugins.server.settings import ServerSettings
from tvsnap.plugins.server.signals import StoppedBySignals
from tvsnap.plugins.server.tls import server_context

KEEP_ALIVE = 3600
"""Seconds that an idle connection is kept."""


async def serve(proxy: Proxy, settings: ServerSettings, sockets: list[socket.socket]) -> None:
    """Serves until SIGTERM or SIGINT comes; then gives requests under way some time, and closes the proxy.

    Args:
        proxy: the proxy.
        settings: the server's settings.
        sockets: sockets at which it listens.
    """
    app = make_app(proxy, settings)
    config = uvicorn.Config(
        AtMost(app, settings.max_connections, lambda: len(server.server_state.connections)),
        http=cast("Any", partial(Patient, settings=settings)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.grace)),
    )
    config.load()
    config.ssl = server_context(settings)
    server = StoppedBySignals(config)
    await server.serve(sockets)
