"""The sockets at which a server listens."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from tvsnap.model.errors import UsageError
from tvsnap.plugins.client.wire.tcp import notice_loss
from tvsnap.plugins.server.settings import ServerSettings


def address_of(listener: socket.socket, settings: ServerSettings) -> str:
    """Returns the address at which a socket listens, as `tvsnap.connect` takes it."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://{host}:{name[1]}"


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
                notice_loss(listener)
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
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise UsageError(f"there is a file at {path} that is no socket: choose another path (--socket)")
            if not _answers(path):
                path.unlink()  # of a server that was killed
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        with contextlib.ExitStack() as undo:
            undo.callback(path.unlink)
            if settings.socket_group is not None:
                group = settings.socket_group
                shutil.chown(path, group=int(group) if group.isdigit() else group)
            path.chmod(settings.socket_mode)
            listener.listen(2048)
            undo.pop_all()
    except UsageError:
        listener.close()
        raise
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
