"""`tvsnap proxy`: caches the answers of a model's server, in front of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from tvsnap.host.home import find_home, resolve_home
from tvsnap.model.errors import NotFound, UsageError

from .. import context, options
from ..text import percent, seconds, size
from .serve import AccessOptions

if TYPE_CHECKING:
    from tvsnap.plugins.proxy.store import ProxyStats
    from tvsnap.plugins.proxy.upstream import Upstream
    from tvsnap.plugins.server.settings import ServerSettings

FILE, PRIORS = "proxy.db", "priors.db"


@options.verb(
    "15",
    begins=True,
    s0="stopped by SIGTERM or SIGINT, or done",
    s2="bad usage, or a package is missing",
    s3="no proxy has run there (--stats, --clear)",
)
def proxy(
    upstream: str | None = Option(
        None, metavar="URL", help="The model's server, as http://127.0.0.1:8000.", show_default=False
    ),
    host: str = Option("127.0.0.1", metavar="ADDRESS", help="Where to listen."),
    port: int = Option(8421, metavar="N", min=0, max=65535, help="The port; 0 for any that is free."),
    upstream_key_file: Path | None = Option(
        None, metavar="FILE", help="The key that the model's server is shown, in place of what clients show."
    ),
    *,
    access: AccessOptions,
    max_size: str = Option("4G", metavar="SIZE", help="What kept answers may take; the least useful ones go."),
    max_body: str = Option("64M", metavar="SIZE", help="The largest body of a request."),
    delta: float = Option(0.98, metavar="COSINE", help="Of priors: how similar a state must be, to count as the same."),
    refresh: float = Option(0.02, metavar="P", help="Of priors: how often the model is asked all the same, 0 to 1."),
    timeout: float = options.seconds(600.0, "--timeout", "How long the model's server may be silent."),
    show_stats: bool = Option(False, "--stats", help="Print what is kept and was saved; serve nothing."),
    clear: bool = Option(False, "--clear", help="Delete all kept answers; serve nothing."),
    as_json: options.AsJson = False,
) -> None:
    """Cache the answers of a model's server, in front of it.

    The server has the interface of OpenAI's. Repeated requests with only one right answer are answered from the data
    directory: embeddings, and completions with temperature 0 or a seed, if model, path and body are the same as JSON.
    Streams come again as the recorded events. The header x-tvsnap-cache of an answer is hit, miss, or bypass; bypass is
    for all other requests, which are passed on. Errors are never kept. A client that sends the header itself, with
    bypass or refresh, gets the server's own answer. It needs: pip install 'tvsnap[proxy]'.

    It listens at this machine's own address by default, and refuses to listen elsewhere without a token file or
    certificates of clients.

    \b
    Examples:
      tvsnap proxy --upstream http://127.0.0.1:8000
      OPENAI_BASE_URL=http://127.0.0.1:8421/v1 python3 agent.py
      tvsnap proxy --upstream https://models:8000 --upstream-key-file key
      tvsnap proxy --upstream http://models --host 0.0.0.0 --token-file tokens
      tvsnap proxy --stats --json
    """
    limit = options.parse_size(max_size)
    if show_stats or clear:
        if upstream is not None or (show_stats and clear):
            raise UsageError("give one of --upstream, --stats and --clear")
        _show_file(limit, clear=clear, as_json=as_json)
        return
    try:
        from tvsnap.plugins.proxy.listen import serve  # noqa: F401  # it needs all others
        from tvsnap.plugins.proxy.upstream import Upstream
        from tvsnap.plugins.server.tls import server_context
    except ModuleNotFoundError as error:
        raise UsageError(f"the package {error.name} is missing: pip install 'tvsnap[proxy]'") from None
    if upstream is None:
        raise UsageError("give the address of the model's server: --upstream http://127.0.0.1:8000")
    settings = _settings(host, port, access, max_body)
    server_context(settings)  # so that an error of the files is reported before anything starts
    key = None if upstream_key_file is None else _key(upstream_key_file)
    model = Upstream(upstream, key=key, timeout=timeout)
    _run(model, settings, limit, delta, refresh, as_json=as_json)


def _settings(host: str, port: int, access: AccessOptions, max_body: str) -> ServerSettings:
    """Returns the settings of the proxy's own server; raises `UsageError` if it would let in anybody from elsewhere."""
    from tvsnap.plugins.server.settings import ServerSettings, is_loopback

    if not (access.token_file or access.tls_client_ca or is_loopback(host)):
        raise UsageError(
            f"the proxy refuses to listen at {host} without authentication, as anyone who reaches it could use the "
            "model: give a token file (--token-file), ask for certificates (--tls-client-ca), or listen at 127.0.0.1"
        )
    return ServerSettings(host=host, port=port, max_body=options.parse_size(max_body), **access.settings())


def _show_file(limit: int, *, clear: bool, as_json: bool) -> None:
    """Shows what is kept and was saved, or deletes all answers."""
    from tvsnap.plugins.proxy.store import AnswerStore

    file = find_home() / FILE
    if not file.exists():
        raise NotFound(f"there is no {file}: no proxy has run there (--home)")
    store = AnswerStore(file, limit)
    try:
        _look(store.clear() if clear else store.stats(), as_json=as_json)
    finally:
        store.close()


def _run(model: Upstream, settings: ServerSettings, limit: int, delta: float, refresh: float, *, as_json: bool) -> None:
    """Serves until SIGTERM or SIGINT comes."""
    import asyncio

    from tvsnap.plugins.proxy.app import Proxy
    from tvsnap.plugins.proxy.listen import serve
    from tvsnap.plugins.proxy.priors import Priors
    from tvsnap.plugins.proxy.store import AnswerStore
    from tvsnap.plugins.server.sockets import address_of, listening

    file = resolve_home() / FILE

    async def go(sockets: list[Any]) -> None:
        store = AnswerStore(file, limit)
        priors = Priors(file.with_name(PRIORS), delta, refresh)
        address = address_of(sockets[0], settings)
        typer.echo(json.dumps({"url": address, "upstream": model.url}) if as_json else f"tvsnap: proxy at {address}")
        try:
            await serve(Proxy(model, store, priors, settings), settings, sockets)
        finally:
            store.close()

    try:
        with listening(settings) as sockets:
            asyncio.run(go(sockets))
    except KeyboardInterrupt:  # by then, the proxy has stopped cleanly
        raise typer.Exit(0) from None


def _key(path: Path) -> str:
    try:
        mode, key = path.stat().st_mode, path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key file {path} cannot be read: {error} (--upstream-key-file)") from None
    if mode & 0o077:
        raise UsageError(f"others may read the key file {path}: chmod 600 {path}")
    if not key or len(key.split()) > 1:
        raise UsageError(f"the key file {path} must hold one key, in one line (--upstream-key-file)")
    return key


def _look(stats: ProxyStats | int, *, as_json: bool) -> None:
    if isinstance(stats, int):
        context.answer({"deleted": stats}, as_json=as_json, show=lambda: typer.echo(f"{stats:,} answers deleted"))
        return
    requests = stats.hits + stats.misses
    rows = [
        ("hits", f"{stats.hits:,}", f"{percent(stats.hits, requests)} of the requests with one answer"),
        ("misses", f"{stats.misses:,}", f"{stats.failed:,} failed, of which nothing is kept"),
        ("bypassed", f"{stats.bypassed:,}", "passed on"),
        ("asked", seconds(stats.asked_s), "what the model's server took for misses"),
        ("saved", seconds(stats.saved_s), "what it took for what hits were answered with"),
        ("answers", f"{stats.answers:,}", f"{size(stats.bytes)} of {size(stats.max_bytes)}; {stats.evicted:,} evicted"),
    ]
    context.answer(asdict(stats), as_json=as_json, show=lambda: context.console().print(context.grid(rows)))
