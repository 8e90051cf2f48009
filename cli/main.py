"""The `tvsnap` command: its verbs, and the conversion of every error to one line and an exit status."""

from __future__ import annotations

import errno
import functools
import importlib
import os
import sys
from typing import Any

import typer
from typer import Option
from typer.core import TyperGroup
from typer.main import get_group

from tvsnap.model.errors import TvsnapError

from . import options, signals
from .text import visible

VERBS = {
    "demo": "Show on a small task what the cache does.",
    "setup": "Install or build what this machine lacks.",
    "doctor": "Tell what works on this machine, and how to mend the rest.",
    "image": "Build, list, show, export and remove environment images.",
    "replay": "Run rollout files through the cache: the main job.",
    "run": "Make tool calls by hand, as one rollout.",
    "tree": "Show the tree of states, with calls, hits, forks and snapshots.",
    "browse": "Walk through the tree of states on a screen.",
    "rollouts": "List the rollouts that were made, newest first.",
    "show": "Show a rollout's calls, or a state: how it came about.",
    "diff": "Show how two states differ: files, processes, shell.",
    "shell": "Open an interactive shell in a fork of a state.",
    "exec": "Run one command in a throw-away fork of a state.",
    "serve": "Serve rollouts, states and images to clients over HTTP.",
    "web": "Look at a data directory in a browser.",
    "proxy": "Cache the answers of a model's server, in front of it.",
    "mcp": "Serve the tools of a sandbox to an agent over MCP.",
    "verify": "Make recorded calls again, and compare.",
    "events": "Tell what happens at a server, as it happens.",
    "watch": "Watch what happens while rollouts run.",
    "stats": "Show hit rates, time saved, disk and memory in use.",
    "report": "Write a page with charts: hit rates, times, and what was not shared.",
    "push": "Send what a task did to an object store.",
    "pull": "Bring what was pushed to an object store.",
    "gc": "Free what nothing needs.",
    "forget": "Delete a branch, or what a task did: calls, states, snapshots.",
}
"""The verbs in the order of the help; each is a module of this package, imported only when it is used."""

PLUGGED_IN = frozenset({"browse", "events", "mcp", "proxy", "pull", "push", "serve", "web"})
"""Those of what plugs in, in the folder `plugins`. They are known by name, as reading entry points would take a quarter
of the time that the help takes."""

DEBUG_VARIABLE = "TVSNAP_DEBUG"

HELP = """tvsnap answers an agent's tool calls from a graph of calls made before, and forks live containers for what is
new.

\b
A first look:
  tvsnap demo                      six rollouts, without and with the cache
  tvsnap image build terminal      make an image to work with
  tvsnap replay rollouts.jsonl --image terminal --parallel 8
  tvsnap tree                      what was called, hit, forked and kept
  tvsnap shell 3fa9c1              walk into any state of any rollout

\b
Exit status:
  0  done                 3  no such image, state or task
  1  failed               4  something differs (verify, diff --exit-code)
  2  bad usage            5  this machine lacks what it takes (tvsnap doctor)
                        130  interrupted

TVSNAP_DEBUG=1 shows where an error came from.
"""


class CommandLine(TyperGroup):
    """The group of all verbs, which reports their exceptions as one line on standard error."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the verbs."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns a verb, or None if the name is unknown."""
        return _verb(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Runs the command line; ends the process with its status unless `standalone_mode` is off."""
        standalone = extra.get("standalone_mode", True)
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False}) or 0
        except TvsnapError as error:
            status = complain(str(error), error, error.exit_status)
        except typer.Abort:
            status = complain("stopped: nothing was done", None, options.FAILED)
        except Exception as error:
            status = _complain_of_usage(error) or complain(
                f"internal error: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)", error
            )
        if standalone:
            sys.exit(status)
        return status


@functools.cache
def _verb(name: str) -> Any:
    return get_group(verb_app(name)).commands[name]


def verb_app(name: str) -> typer.Typer:
    """Returns a command line with one verb, from its module's function of that name and its `SETTINGS`."""
    module = importlib.import_module(f".plugins.{name}" if name in PLUGGED_IN else f".{name}", __package__)
    app, verb = typer.Typer(rich_markup_mode=None), getattr(module, name)
    if isinstance(verb, typer.Typer):
        app.add_typer(verb, name=name)
    else:
        app.command(name, context_settings=getattr(module, "SETTINGS", None))(verb)
    return app


def complain(message: str, error: BaseException | None = None, status: int = options.FAILED) -> int:
    """Prints an error as one line on standard error, with a traceback if that is asked for; returns `status`."""
    if error is not None and os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    if os.strerror(errno.EMFILE) in message:
        message += "; this process may open too few (ulimit -n): tvsnap needs some hundreds"
    typer.echo(f"tvsnap: {visible(message.strip())}".replace("\n", " "), err=True)
    return status


def _complain_of_usage(error: Exception) -> int | None:
    """Reports an error of the command line's syntax; returns None if `error` is of another kind."""
    # The class of these errors has moved between versions of Typer, but its attributes have stayed the same.
    if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
        return None
    context = getattr(error, "ctx", None)
    hint = f" ({context.command_path} --help)" if context is not None else ""
    return complain(error.format_message().rstrip(".") + hint, None, error.exit_code)


def make_app() -> typer.Typer:
    """Returns the command line with all its verbs."""
    app = typer.Typer(
        name="tvsnap",
        cls=CommandLine,
        help=HELP,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_begin)
    return app


def _begin(
    context: typer.Context,
    home: str | None = Option(None, metavar="DIR", help="The data directory (env: TVSNAP_HOME)."),
    backend: str | None = Option(None, metavar="NAME", help="What runs the sandboxes (env: TVSNAP_BACKEND)."),
    version: bool = Option(False, "--version", help="Print the version."),
) -> None:
    """Applies the options before the verb; reports errors in them also for verbs that do not use them."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"tvsnap {version_of('tvsnap')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    chosen = os.environ.get(options.BACKEND_VARIABLE) or None if backend is None else backend
    options.check_home(home)
    if chosen is not None:
        options.check_backend(chosen)
    context.with_resource(options.environment(home, backend))


def main() -> None:
    """Runs the command line and ends the process."""
    signals.arrange()
    make_app()()
