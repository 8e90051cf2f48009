"""`tvsnap serve`: runs the HTTP server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Option

from tvsnap.model.errors import UsageError

from .. import context, options

if TYPE_CHECKING:
    from socket import socket as Socket

    from tvsnap.model.limits import Budget
    from tvsnap.plugins.server.settings import ServerSettings
    from tvsnap.plugins.server.workers import Worker


@options.verb(
    "15", begins=True, backend=True, s0="stopped by SIGTERM or SIGINT", s2="bad usage, or a package is missing"
)
def serve(
    host: str | None = Option("127.0.0.1", metavar="ADDRESS", help="Where to listen; empty for no TCP."),
    port: int = Option(8420, metavar="N", min=0, max=65535, help="The port; 0 for any that is free."),
    socket: Path | None = Option(None, "--socket", "--uds", metavar="PATH", help="Listen at a Unix socket, too."),
    socket_mode: str = Option("660", metavar="MODE", help="Who may use the Unix socket, without a token."),
    socket_group: str | None = Option(None, metavar="GROUP", help="The group of the Unix socket."),
    token_file: Path | None = Option(
        None, metavar="FILE", help="Tokens that clients must show, one a line, with their tenants."
    ),
    tls_certificate: Path | None = Option(None, metavar="FILE", help="Speak TLS at the port, with this certificate."),
    tls_key: Path | None = Option(None, metavar="FILE", help="The certificate's key, if it is in another file."),
    tls_client_ca: Path | None = Option(
        None, metavar="FILE", help="Let in only who shows a certificate of one of these authorities."
    ),
    workers: int = Option(1, metavar="N", min=1, max=256, help="Processes that serve together."),
    ttl: float = options.seconds(3600.0, "--ttl", "End what no client has asked for so many seconds."),
    patience: float = options.seconds(60.0, "--patience", "Time for a request's head, and each MiB of its body."),
    max_body: str = Option("16M", metavar="SIZE", help="The largest body of a request."),
    max_upload: str = Option("4G", metavar="SIZE", help="The largest upload."),
    max_connections: int = Option(4096, metavar="N", min=1, help="Connections at once."),
    max_rollouts: int = Option(10_000, metavar="N", min=1, help="Rollouts open at once."),
    max_held: int = Option(64, metavar="N", min=1, help="Sandboxes that clients hold at once."),
    tvcache: bool = Option(False, "--tvcache", help="Answer TVCache's own clients, too."),
    max_environments: int = Option(50, metavar="N", min=1, help="Environments of a task that those keep."),
    grace: float = options.seconds(10.0, "--grace", "Time for requests under way when it is stopped.", least=0.0),
    worker_patience: float = options.seconds(
        120.0, "--worker-patience", "End and start again a process of several that does nothing any more.", least=3.0
    ),
    log_format: str = Option("text", metavar="NAME", help="json: a line for each request; text: messages only."),
    max_disk: options.MaxDisk = None,
    max_snapshots: options.MaxSnapshots = None,
    max_memory: options.MaxMemory = None,
    max_sandboxes: options.MaxSandboxes = None,
    policy: str = Option(options.POLICY, metavar="NAME", help="When to snapshot: default, eager or never."),
    graph: str | None = Option(
        None,
        metavar="URL",
        help="Exchange calls with other hosts through this database: postgresql://USER@HOST/DATABASE.",
        envvar="TVSNAP_GRAPH",
    ),
    store: str | None = Option(
        None,
        metavar="URL",
        help="Pull each task from this object store when it begins here, and push it as it grows.",
        envvar="TVSNAP_STORE",
    ),
) -> None:
    """Serve rollouts, states and images to clients over HTTP.

    Clients use it by tvsnap.connect("http://host:port", token=...). It listens at this machine's own address by
    default, and refuses to listen elsewhere without a token file or certificates of clients. It needs:
    pip install 'tvsnap[server]'.

    \b
    Examples:
      tvsnap serve
      tvsnap serve --tvcache --port 8000
      tvsnap serve --socket /run/tvsnap.sock --socket-group agents
      openssl rand -hex 32 > tokens && chmod 600 tokens
      tvsnap serve --host 0.0.0.0 --token-file tokens --tls-certificate tls.pem
      tvsnap serve --store s3://bucket/tvsnap
      PGPASSFILE=secret tvsnap serve --graph postgresql://tvsnap@db.internal/calls
    """
    with needs_server():
        from tvsnap.plugins.server.logs import log_as_json
        from tvsnap.plugins.server.settings import ServerSettings
        from tvsnap.plugins.server.tenants import read_tokens
        from tvsnap.plugins.server.tls import server_context
    settings = ServerSettings(
        host=host or None,
        port=port,
        socket=None if socket is None else socket.absolute(),
        socket_mode=_mode(socket_mode),
        socket_group=socket_group,
        tokens={} if token_file is None else read_tokens(token_file),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        ttl=ttl,
        patience=patience,
        max_body=options.parse_size(max_body),
        max_upload=options.parse_size(max_upload),
        max_connections=max_connections,
        max_rollouts=max_rollouts,
        max_sandboxes=max_held,
        max_environments=max_environments,
        tvcache=tvcache,
        store=store,
        grace=grace,
        worker_patience=worker_patience,
        log_format=log_format,
    )
    server_context(settings)  # so that an error of the files is reported before anything starts
    budget = options.budget(max_disk, max_snapshots, max_memory, max_sandboxes)
    if log_format == "json":
        log_as_json()
    if workers == 1:
        run_alone(settings, budget, policy, _show_addresses, graph)
    else:
        _run_workers(workers, settings, budget, policy, graph)


def _mode(digits: str) -> int:
    try:
        return int(digits, 8)
    except ValueError:
        raise UsageError(f"--socket-mode must be octal digits, as 660, not {digits!r}") from None


def _show_addresses(addresses: list[str]) -> None:
    typer.echo(f"tvsnap: serving at {', '.join(addresses)}")


def _run_workers(count: int, settings: ServerSettings, budget: Budget, policy: str, graph: str | None) -> None:
    """Serves by several processes until SIGTERM or SIGINT comes; the arguments are as of `run_alone`."""
    import uvloop

    from tvsnap.plugins.server.workers import share_of, supervise

    settings_of_each, budget_of_each = share_of(settings, budget, count)

    def run(worker: Worker, sockets: list[Socket], ready: Callable[[], None]) -> None:
        uvloop.run(_serve(settings_of_each, budget_of_each, policy, sockets, worker, ready, graph))

    with _stopped_cleanly():
        supervise(settings, count, run, _show_addresses)


def run_alone(
    settings: ServerSettings,
    budget: Budget,
    policy: str,
    tell: Callable[[list[str]], None],
    graph: str | None = None,
) -> None:
    """Serves by this process until SIGTERM or SIGINT comes.

    Args:
        settings: the server's.
        budget: its limits.
        policy: its policy for snapshots.
        tell: gets the addresses once it listens.
        graph: the database through which calls are exchanged; None for none.
    """
    import uvloop

    from tvsnap.plugins.server.sockets import address_of, listening

    with _stopped_cleanly(), listening(settings) as sockets:
        addresses = [address_of(one, settings) for one in sockets]
        uvloop.run(_serve(settings, budget, policy, sockets, None, lambda: tell(addresses), graph))


@contextlib.contextmanager
def needs_server() -> Iterator[None]:
    """A block that imports parts of the server; raises `UsageError` if packages of `tvsnap[server]` are missing."""
    try:
        import uvloop  # noqa: F401

        import tvsnap.plugins.server.listen  # noqa: F401  # it needs all others

        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"the package {error.name} is missing: pip install 'tvsnap[server]'") from None


@contextlib.contextmanager
def _stopped_cleanly() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:  # by then, the server has stopped cleanly
        raise typer.Exit(0) from None


async def _serve(
    settings: ServerSettings,
    budget: Budget,
    policy: str,
    sockets: list[Socket],
    worker: Worker | None,
    ready: Callable[[], None],
    graph: str | None,
) -> None:
    from tvsnap.aio.cache import AsyncCache
    from tvsnap.plugins.server.listen import serve

    cache = AsyncCache(
        backend=context.backend_name(),
        policy=policy,
        budget=budget,
        shares={tenant.share for tenant in settings.tokens.values() if tenant is not None},
        threads=budget.sandboxes + 64,
        graph=graph,
    )
    try:
        await serve(cache, settings, sockets, worker, ready)
    finally:
        await cache.close()
