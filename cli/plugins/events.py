"""`tvsnap events`: tells what happens at a server, as it happens."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from tvsnap.model.errors import UsageError

from .. import context, options
from ..text import one_line

if TYPE_CHECKING:
    from tvsnap.client import Event


@options.verb("012", url=True)
def events(as_json: options.AsJson = False) -> None:
    """Tell what happens at a server, as it happens, until it is stopped or you press Ctrl-C.

    A line for each rollout that begins or ends, for each call with the source and time of its answer, and for each
    build of an image. With --json, a line of JSON each.

    \b
    Examples:
      tvsnap events --url http://sandboxes:8420
      tvsnap events --json | jq 'select(.event == "call") | .source'
    """
    client = context.connected()
    if client is None:
        raise UsageError("events are those of a server: give --url, or set TVSNAP_URL")
    with client, client.events() as happened:
        for event in happened:
            typer.echo(json.dumps({"event": event.name, **event.data}) if as_json else _line(event))
            sys.stdout.flush()


def _line(event: Event) -> str:
    words = (f"{name}={_shown(value)}" for name, value in event.data.items() if value is not None)
    return one_line(f"{event.name}: {' '.join(words)}")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
