"""`tvsnap serve`: runs the HTTP server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from tvsnap.model.errors import UsageError

from .. import context, options

if TYPE_CHECKING:
    from socket import socket as Socket

    from tvsnap.model.limits import Budget
    from tvsnap.plugins.server.settings import ServerSettings
    from tvsnap.plugins.server.workers import Worker


@dataclass(frozen=True)
class AccessOptions:
    """Whom a server lets in, and how it shows who it is."""

    token_file: Annotated[
        Path | None, Option(metavar="FILE", help="Tokens that clients must show, one a line, with their tenants.")
    ] = None
    tls_certificate: Annotated[
        Path | None, Option(metavar="FILE", help="Speak TLS at the port, with this certificate.")
    ] = None
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="The certificate's key, if it is in another file.")] = (
        None
    )
    tls_client_ca: Annotated[
        Path | None,
        Option(metavar="FILE", help="Let in only who shows a certificate of one of these authorities."),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Returns what these options say of `ServerSettings`."""
        from tvsnap.plugins.server.tenants import read_tokens

        return {
            "tokens": {} if self.token_file is None else read_tokens(self.token_file),
            "tls_certificate": self.tls_certificate,
            "tls_key": self.tls_key,
            "tls_client_ca": self.tls_client_ca,
        }


@dataclass(frozen=True)
class ServiceOptions:
    """What clients of a server may ask for and hold, and for how long."""

    ttl: float = options.seconds(3600.0, "--ttl", "End what no client has asked for so many seconds.")
    patience: float = options.seconds(60.0, "--patience", "Time for a request's head, and each MiB of its body.")
    max_body: Annotated[str, Option(metavar="SIZE", help="The largest body of a request.")] = "16M"
    max_upload: Annotated[str, Option(metavar="SIZE", help="The largest upload.")] = "4G"
    max_connections: Annotated[int, Option(metavar="N", min=1, help="Connections at once.")] = 4096
    max_rollouts: Annotated[int, Option(metavar="N", min=1, help="Rollouts open at once.")] = 10_000
    max_held: Annotated[int, Option(metavar="N", min=1, help="Sandboxes that clients hold at once.")] = 64
    tvcache: Annotated[bool, Option("--tvcache", help="Answer TVCache's own clients, too.")] = False
    max_environments: Annotated[int, Option(metavar="N", min=1, help="Environments of a task that those keep.")] = 50
    grace: float = options.seconds(10.0, "--grace", "Time for requests under way when it is stopped.", least=0.0)
    worker_patience: float = options.seconds(
        120.0, "--worker-patience", "End and start again a process of several that does nothing any more.", least=3.0
    )
    log_format: Annotated[str, Option(metavar="NAME", help="json: a line for each request; text: messages only.")] = (
        "text"
    )

    def settings(self) -> dict[str, Any]:
        """Returns what these options say of `ServerSettings`."""
        sizes = {name: options.parse_size(getattr(self, name)) for name in ("max_body", "max_upload")}
        settings = {**asdict(self), **sizes}
        settings["max_sandboxes"] = settings.pop("max_held")
        return settings


@dataclass(frozen=True)
class CacheOptions(options.BudgetOptions):
    """The cache of a server."""

    policy: options.Policy = options.POLICY
    graph: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="Exchange calls with other hosts through this database: postgresql://USER@HOST/DATABASE.",
            envvar="TVSNAP_GRAPH",
        ),
    ] = None


@options.verb(
    "15", begins=True, backend=True, s0="stopped by SIGTERM or SIGINT", s2="bad usage, or a package is missing"
)
def serve(
    host: str | None = Option("127.0.0.1", metavar="ADDRESS", help="Where to listen; empty for no TCP."),
    port: int = Option(8420, metavar="N", min=0, max=65535, help="The port; 0 for any that is free."),
    socket: Path | None = Option(None, "--socket", "--uds", metavar="PATH", help="Listen at a Unix socket, too."),
    socket_mode: str = Option("660", metavar="MODE", help="Who may use the Unix socket, without a token."),
    socket_group: str | None = Option(None, metavar="GROUP", help="The group of the Unix socket."),
    *,
    access: AccessOptions,
    workers: int = Option(1, metavar="N", min=1, max=256, help="Processes that serve together."),
    service: ServiceOptions,
    cache: CacheOptions,
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
        from tvsnap.plugins.server.tls import server_context
    settings = ServerSettings(
        host=host or None,
        port=port,
        socket=None if socket is None else socket.absolute(),
        socket_mode=_mode(socket_mode),
        socket_group=socket_group,
        **access.settings(),
        **service.settings(),
        store=store,
    )
    server_context(settings)  # so that an error of the files is reported before anything starts
    if settings.log_format == "json":
        log_as_json()
    if workers == 1:
        run_alone(settings, cache, _show_addresses)
    else:
        _run_workers(workers, settings, cache)


def _mode(digits: str) -> int:
    try:
        return int(digits, 8)
    except ValueError:
        raise UsageError(f"--socket-mode must be octal digits, as 660, not {digits!r}") from None


def _show_addresses(addresses: list[str]) -> None:
    typer.echo(f"tvsnap: serving at {', '.join(addresses)}")


def _run_workers(count: int, settings: ServerSettings, cache: CacheOptions) -> None:
    """Serves by several processes until SIGTERM or SIGINT comes."""
    import uvloop

    from tvsnap.plugins.server.workers import share_of, supervise

    settings_of_each, budget_of_each = share_of(settings, cache.budget(), count)

    def run(worker: Worker, sockets: list[Socket], ready: Callable[[], None]) -> None:
        uvloop.run(_serve(settings_of_each, cache, budget_of_each, sockets, worker, ready))

    with _stopped_cleanly():
        supervise(settings, count, run, _show_addresses)


def run_alone(settings: ServerSettings, cache: CacheOptions, tell: Callable[[list[str]], None]) -> None:
    """Serves by this process until SIGTERM or SIGINT comes; `tell` gets the addresses once it listens."""
    import uvloop

    from tvsnap.plugins.server.sockets import address_of, listening

    budget = cache.budget()
    with _stopped_cleanly(), listening(settings) as sockets:
        addresses = [address_of(one, settings) for one in sockets]
        uvloop.run(_serve(settings, cache, budget, sockets, None, lambda: tell(addresses)))


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
    cache: CacheOptions,
    budget: Budget,
    sockets: list[Socket],
    worker: Worker | None,
    ready: Callable[[], None],
) -> None:
    from tvsnap.aio.cache import AsyncCache
    from tvsnap.plugins.server.listen import serve

    opened = AsyncCache(
        backend=context.backend_name(),
        policy=cache.policy,
        budget=budget,
        shares={tenant.share for tenant in settings.tokens.values() if tenant is not None},
        threads=budget.sandboxes + 64,
        graph=cache.graph,
    )
    try:
        await serve(opened, settings, sockets, worker, ready)
    finally:
        await opened.close()
