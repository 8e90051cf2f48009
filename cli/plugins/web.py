"""`tvsnap web`: serves the page about a data directory to a browser of this machine."""

from __future__ import annotations

import contextlib
import html
import secrets
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import typer
from typer import Option

from .. import options
from .serve import CacheOptions, needs_server, run_alone

_FORGOTTEN = 900.0
"""Seconds without a request of its page after which a fork ends (a killed browser). Others end with the view."""


@options.verb("5", backend=True, s0="stopped by SIGTERM or SIGINT", s2="bad usage, or a package is missing")
def web(
    port: int = Option(0, metavar="N", min=0, max=65535, help="The port; 0 for any that is free."),
    open_page: bool = Option(False, "--open", help="Open the page in a browser."),
) -> None:
    """Look at a data directory in a browser: tasks, trees, states, differences, files, terminals.

    It serves the page to programs of this machine alone, and prints its address with a token that is made for this
    run. Trainers may use the same data directory meanwhile. The page of tvsnap serve is the same. It needs:
    pip install 'tvsnap[server]'.

    \b
    Examples:
      tvsnap web
      tvsnap web --home /data/run-7 --open
    """
    with needs_server():
        from tvsnap.plugins.server.settings import ServerSettings
    token = secrets.token_urlsafe(24)
    settings = ServerSettings(port=port, tokens={token: None}, ttl=_FORGOTTEN)
    with contextlib.ExitStack() as ends:

        def tell(addresses: list[str]) -> None:
            address = f"{addresses[0]}/#token={token}"
            typer.echo(f"tvsnap: the page is at {address}")
            if open_page:
                webbrowser.open(ends.enter_context(_leading_to(address)))

        run_alone(settings, CacheOptions(), tell)


@contextlib.contextmanager
def _leading_to(address: str) -> Iterator[str]:
    """Yields the address of a file that leads to another address, so that no list of processes shows its token."""
    with tempfile.TemporaryDirectory(prefix="tvsnap-web-") as folder:
        file = Path(folder, "page.html")
        file.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">')
        yield file.as_uri()
