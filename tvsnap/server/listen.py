"""Runs a server until it is told to stop: its sockets, its signals, and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from tvsnap.aio.cache import AsyncCache
from tvsnap.model.errors import UsageError
from tvsnap.server.app import make_app
from tvsnap.server.settings import ServerSettings

KEEP_ALIVE = 3600
"""Seconds that an idle connection is kept: a client's pool need not connect anew for each call."""


async def serve(cache: AsyncCache, settings: ServerSettings, ready: Callable[[list[str]], None] | None = None) -> None:
    """Serves a cache until SIGTERM or SIGINT comes; then ends all rollouts and sandboxes, and closes the cache.

    Args:
        cache: the cache.
        settings: where to listen, whom to let in, what clients may hold.
        ready: is given the addresses, as `tvsnap.connect` takes them, once connections are taken.

    Raises:
        UsageError: it cannot listen there.
    """
    with listening(settings) as sockets:
        config = uvicorn.Config(
            make_app(cache, settings),
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=settings.max_connections,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(settings.grace)),
        )
        if ready is not None:
            ready([address_of(one) for one in sockets])
        logging.getLogger("tvsnap.server").info("listening at %s", ", ".join(map(address_of, sockets)))
        await _Server(config).serve(sockets)


class _Server(uvicorn.Server):
    """Ends in order at a signal, and does not raise it once more afterwards: to be stopped is no failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def address_of(listener: socket.socket) -> str:
    """Returns the address at which a socket listens, as `tvsnap.connect` takes it."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


@contextlib.contextmanager
def listening(settings: ServerSettings) -> Iterator[list[socket.socket]]:
    """A block with the sockets at which a server listens; a Unix socket's file is removed at its end.

    Raises:
        UsageError: an address is in use, or there is no such address, path or group.
    """
    with contextlib.ExitStack() as ends:
        sockets = []
        if settings.host is not None:
            try:
                family, kind, protocol, _, address = socket.getaddrinfo(
                    settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )[0]
                listener = ends.enter_context(socket.socket(family, kind, protocol))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(2048)
            except OSError as error:
                where = f"{settings.host}:{settings.port}"
                raise UsageError(f"the server cannot listen at {where}: {error.strerror} (--host, --port)") from None
            sockets.append(listener)
        if settings.socket is not None:
            sockets.append(ends.enter_context(_unix_socket(settings.socket, settings)))
        yield sockets


@contextlib.contextmanager
def _unix_socket(path: Path, settings: ServerSettings) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode) and not _answers(path):
                path.unlink()  # of a server that was killed
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        if settings.socket_group is not None:
            group = settings.socket_group
            shutil.chown(path, group=int(group) if group.isdigit() else group)
        path.chmod(settings.socket_mode)
        listener.listen(2048)
    except (OSError, LookupError) as error:
        listener.close()
        raise UsageError(f"the server cannot listen at {path}: {error} (--socket, --socket-group)") from None
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
