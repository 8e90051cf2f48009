"""`tvsnap run`: runs one rollout by hand."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from tvsnap.model.arguments import check_text
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import TvsnapError, UsageError
from tvsnap.model.network import Network

from . import completion, context, options
from .main import complain
from .network_hint import NetworkHint
from .text import call_line, cut, one_line, seconds, size, visible

if TYPE_CHECKING:
    from tvsnap.model.calls import ToolResult
    from tvsnap.protocols import AnyRollout

PROMPT = "> "


@options.verb(
    "15",
    begins=True,
    backend=True,
    url=True,
    s0="the calls were made (whatever the commands returned)",
    s2="bad usage, or no call was given",
    s3="no such image",
)
def run(
    image: str = Argument(..., metavar="IMAGE", help="The image to start.", autocompletion=completion.images),
    commands: list[str] | None = Option(None, "-c", "--command", metavar="COMMAND", help="A command; may be repeated."),
    queries: list[str] | None = Option(
        None, "--sql", metavar="QUERY", help="A call of the tool `sql`; may be repeated (after any -c)."
    ),
    tool: str | None = Option(None, metavar="NAME", help="Call this tool (after those)."),
    arguments: str | None = Option(None, "--args", metavar="JSON", help="Its arguments, an object."),
    task: str = Option("", metavar="TASK", help="The task that the rollout is of."),
    salt: str | None = Option(None, metavar="TEXT", help="Share states only with rollouts of this salt."),
    network: options.Network = None,
    timeout: float = options.seconds(30.0, "--timeout", "Seconds for each call."),
    policy: options.Policy = options.POLICY,
    *,
    bounds: options.BudgetOptions,
    as_json: options.AsJson = False,
) -> None:
    """Make tool calls by hand, as one rollout.

    Each command is a call of the tool `bash`. Without -c, --sql and --tool, commands are read from a prompt, or from
    standard input, a line each, at least one; there, :TOOL {"arg": ...} calls another tool, and :TOOL TEXT one that
    wants just a text. Calls made before are answered from the graph, like in any rollout.

    \b
    Examples:
      tvsnap run terminal -c 'cd /tmp && git init x' -c 'ls -a x'
      tvsnap run terminal --tool read_file --args '{"path": "/etc/os-release"}'
      tvsnap run postgres --sql 'CREATE TABLE t (n int)' --sql 'SELECT * FROM t'
      tvsnap run terminal --network public -c 'apt-get update -q'
      tvsnap run terminal
    """
    calls: list[tuple[str, dict[str, Any]]] = [("bash", {"command": command}) for command in commands or ()]
    calls += [("sql", {"query": query}) for query in queries or ()]
    if tool is not None:
        calls.append((tool, parse_arguments("{}" if arguments is None else arguments)))
    elif arguments is not None:
        raise UsageError("--args are the arguments of a tool: say which with --tool NAME")
    prompted = not calls and context.is_terminal() and not as_json
    with context.any_cache(policy=policy, budget=bounds.budget()) as cache:
        built = cache.images.get(check_text(image, "image"))
        lines = iter(()) if calls or prompted else _calls_of_standard_input()
        asked_network = options.network(network)
        with cache.rollout(image, task, salt, "by hand", network=asked_network) as rollout:
            reach = built.network if asked_network is None else Network.of(asked_network)
            session = _Session(rollout, timeout, built.name, reach, as_json=as_json)
            for name, call_text in calls:
                session.call(name, call_text, echo=len(calls) > 1)
            for line in lines:
                session.call(*session.parse(line), echo=True)
            if prompted:
                session.prompt()
            if as_json:
                about = {"rollout": rollout.id, "root": rollout.root}
                context.print_json({**about, "state": rollout.state, "calls": session.made})


def _calls_of_standard_input() -> Iterator[str]:
    """Returns the lines of standard input that are not blank, once the first one is read; there must be one."""
    lines = (line for line in options.input_lines() if line.strip())
    first = next(lines, None)
    if first is None:
        raise UsageError(
            "no call was given: give one with -c COMMAND, --sql QUERY or --tool NAME, or as a line of standard input, "
            "which held none (tvsnap run --help)"
        )
    return itertools.chain((first,), lines)


def parse_arguments(text: str) -> dict[str, Any]:
    """Returns a tool's arguments, given as JSON; raises `UsageError` if they are not a JSON object."""
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the arguments are no JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise UsageError('the arguments must be a JSON object, as in {"path": "/etc/passwd"}')
    return arguments


class _Session:
    """Makes calls, prints their results, and collects them in `made` as plain JSON."""

    def __init__(self, rollout: AnyRollout, timeout: float, image: str, network: Network, *, as_json: bool) -> None:
        self.made: list[dict[str, Any]] = []
        self._rollout = rollout
        self._timeout = timeout
        self._as_json = as_json
        self._image = image
        self._network = network
        self._hint = NetworkHint()
        self._console = context.console(soft_wrap=True)

    def parse(self, line: str) -> tuple[str, dict[str, Any]]:
        """Returns the tool and the arguments of a line that a person typed."""
        if not line.startswith(":"):
            return "bash", {"command": line}
        name, _, text = line[1:].partition(" ")
        if name not in self._rollout.tools:
            return name, {}  # the call fails and lists the tools
        wanted: list[str] = list(self._rollout.tools[name].parameters.get("required", ()))
        if text and not text.startswith("{") and len(wanted) == 1:
            return name, {wanted[0]: text}
        return name, parse_arguments(text or "{}")

    def call(self, name: str, arguments: dict[str, Any], *, echo: bool = False) -> None:
        """Makes a call; with `echo`, prints it first."""
        if echo and not self._as_json:
            line = cut(call_line(ToolCall(name, arguments)), self._console.width - len(PROMPT))
            self._console.print(PROMPT + line, style="bold")
        result = self._rollout.call(name, arguments, timeout=self._timeout)
        state, private = self._rollout.state, self._rollout.private
        self.made.append(
            {
                "name": name,
                "arguments": arguments,
                "source": result.source,
                "exit_code": result.exit_code,
                "timed_out": result.timed_out,
                "truncated": result.truncated,
                **result.as_json(),
                "duration": result.duration,
                "state": state,
                "private": private,
            }
        )
        if not self._as_json:
            self._print(result, state, private)
        self._hint.look(result.output, self._image, self._network)

    def prompt(self) -> None:
        """Reads calls from a person until the end of input (Ctrl-D); Ctrl-C drops a line or cancels a running call."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives `input` editing and history)

        others = [name for name in self._rollout.tools if name != "bash"]
        self._console.print(
            f"each line is a call of bash; :TOOL TEXT or :TOOL {{...}} calls {', '.join(others)}; Ctrl-D ends",
            style="dim",
            soft_wrap=False,
        )
        while True:
            try:
                line = input(PROMPT)
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._console.print()
                continue
            if not line.strip():
                continue
            try:
                self.call(*self.parse(line))
            except KeyboardInterrupt:
                self._console.print("\nthe call was given up; the rollout stands where it stood", style="yellow")
            except TvsnapError as error:
                complain(str(error), error)

    def _print(self, result: ToolResult, state: str, private: str | None) -> None:
        if result.output:
            typer.echo(visible(result.output), nl=not result.output.endswith("\n"))
        for part in result.attachments:
            self._console.print(f"[{part.media_type}, {size(len(part.data))}]", style="cyan")
        status = "timed out" if result.timed_out else f"exit {result.exit_code}" if result.exit_code is not None else ""
        words = [result.source, status, seconds(result.duration), f"state {state[:12]}"]
        words += ["output cut"] if result.truncated else []
        self._console.print("-- " + ", ".join(filter(None, words)), style="dim")
        if private:
            self._console.print(f"-- private: {one_line(private)}", style="magenta")
