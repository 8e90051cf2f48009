"""The declaration of verbs: shared options, and the table of exit statuses at the end of their help."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Option

from tvsnap.host.home import check_there, find_home
from tvsnap.model.errors import UsageError

from . import completion

if TYPE_CHECKING:
    from tvsnap.model.limits import Budget

HOME_VARIABLE = "TVSNAP_HOME"
BACKEND_VARIABLE = "TVSNAP_BACKEND"
URL_VARIABLE = "TVSNAP_URL"
TOKEN_VARIABLE = "TVSNAP_TOKEN"
CA_VARIABLE = "TVSNAP_CA"
CERTIFICATE_VARIABLE = "TVSNAP_CERTIFICATE"
DEFAULT_BACKEND = "local"
POLICY = "default"

FAILED = 1
DIFFERS = 4
INTERRUPTED = 130

_MEANINGS = {
    0: "done",
    1: "failed",
    2: "bad usage",
    3: "no such image, state or task",
    4: "something differs",
    5: "this machine lacks what is needed (tvsnap doctor)",
}


def check_home(path: str | None) -> str | None:
    """Returns the path of a data directory; raises `UsageError` if it is empty."""
    if path == "":
        raise UsageError("home must be a path, not '' (--home)")
    return path


def check_backend(name: str) -> str:
    """Returns the name of a backend; raises `UsageError` if it is unknown."""
    from tvsnap import sandboxes as backends

    try:
        backends.check_name(name)
    except UsageError as error:
        raise UsageError(f"{error} (--backend, ${BACKEND_VARIABLE})") from None
    return name


Home = Annotated[
    str | None, Option(metavar="DIR", help="The data directory.", envvar=HOME_VARIABLE, callback=check_home)
]
Backend = Annotated[
    str, Option(metavar="NAME", help="What runs the sandboxes.", envvar=BACKEND_VARIABLE, callback=check_backend)
]
Url = Annotated[
    str | None,
    Option(
        metavar="URL",
        help="Ask this server (http://HOST:PORT, https://HOST:PORT or unix:PATH) in place of a data directory here; "
        f"its token: ${TOKEN_VARIABLE}.",
        envvar=URL_VARIABLE,
    ),
]

Ca = Annotated[
    str | None,
    Option(metavar="FILE", help="The authority that has signed the server's certificate.", envvar=CA_VARIABLE),
]
Certificate = Annotated[
    str | None,
    Option(metavar="FILE", help="The certificate to show to the server, with its key.", envvar=CERTIFICATE_VARIABLE),
]


def refuse_url(verb: typer.Context, url: str | None) -> None:
    """Raises `UsageError` if an address is given to a verb that asks no server."""
    if url is not None:
        raise UsageError(
            f"{verb.command_path} works on a data directory of its own machine, and asks no server: "
            "leave out --url, or run it on the server's machine"
        )


NoUrl = Annotated[str | None, Option(hidden=True, callback=refuse_url)]
Network = Annotated[
    list[str] | None,
    Option(
        "--network",
        metavar="HOST",
        help="What may be reached outside: none, public, or a host (.SUFFIX for all below it); may be repeated. "
        "By default what the image says.",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]
Policy = Annotated[str, Option(metavar="NAME", help="When to snapshot: default, eager or never.")]
Task = Annotated[str | None, Option(metavar="TASK", help="Only this task.", autocompletion=completion.tasks)]
Image = Annotated[str | None, Option(metavar="IMAGE", help="Only this image.", autocompletion=completion.images)]
STATE = "A state's hash or a prefix of it; PREFIX~2 is two steps up."
StateName = Annotated[str, typer.Argument(metavar="STATE", help=STATE, autocompletion=completion.states)]
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


@dataclass(frozen=True)
class BudgetOptions:
    """What snapshots and sandboxes may take together."""

    max_disk: Annotated[
        str | None,
        Option(
            metavar="SIZE",
            help="Let snapshots take so much, as in 20G; else half of what is free. The least useful ones go.",
        ),
    ] = None
    max_snapshots: Annotated[int | None, Option(metavar="N", min=0, help="Keep so many snapshots at most.")] = None
    max_memory: Annotated[
        str | None, Option(metavar="SIZE", help="Let live sandboxes take so much memory, as in 8G.")
    ] = None
    max_sandboxes: Annotated[int | None, Option(metavar="N", min=1, help="Let so many sandboxes live at once.")] = None

    def budget(self) -> Budget:
        """Returns the budget that these options ask for."""
        from tvsnap.model.limits import Budget

        return Budget(
            disk=None if self.max_disk is None else parse_size(self.max_disk),
            snapshots=self.max_snapshots,
            memory=None if self.max_memory is None else parse_size(self.max_memory),
            sandboxes=Budget().sandboxes if self.max_sandboxes is None else self.max_sandboxes,
        )


def input_lines() -> Iterator[str]:
    """Yields each line of standard input as soon as it is complete, without its line feed.

    Raises:
        UsageError: a line is not UTF-8, or holds a NUL character, which no command can contain.
    """
    for number, line in enumerate(typer.get_binary_stream("stdin"), 1):
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            wrong = f"is not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}"
        else:
            if "\0" not in text:
                yield text
                continue
            wrong = "must not hold a NUL character"
        raise UsageError(f"line {number} of standard input {wrong}; neither it nor what follows was run")


def seconds(default: float, name: str, help: str, *, least: float | None = None) -> Any:
    """Returns an option for a number of seconds; see `check_seconds`."""

    def check(value: float) -> float:
        from tvsnap.model.arguments import check_seconds

        return check_seconds(value, name, least=least)

    return Option(default, name, metavar="S", help=help, callback=check)


@contextlib.contextmanager
def environment(
    home: str | None,
    backend: str | None,
    url: str | None = None,
    ca: str | None = None,
    certificate: str | None = None,
) -> Iterator[None]:
    """Sets the environment variables of the given options during the block, so that they hold for every verb."""
    of_server = {URL_VARIABLE: url, CA_VARIABLE: ca, CERTIFICATE_VARIABLE: certificate}
    settings = {HOME_VARIABLE: home, BACKEND_VARIABLE: backend, **of_server}
    before = {name: os.environ.get(name) for name, value in settings.items() if value is not None}
    os.environ.update({name: value for name, value in settings.items() if value is not None})
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del os.environ[name]
            else:
                os.environ[name] = old


def verb(
    usual: str = "", *, begins: bool = False, backend: bool = False, url: bool = False, **own: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declares a function as a verb; its docstring, completed with a table of exit statuses, is its help.

    A parameter whose type is a dataclass is a group of options, one for each field, which several verbs may share.

    Args:
        usual: the exit statuses that have their usual meaning, one digit each.
        begins: whether it may begin a data directory; if not, a missing one is an error. All verbs have the option
            `--home`, which sets `HOME_VARIABLE` while the function runs.
        backend: whether it has the option `--backend`, which sets `BACKEND_VARIABLE`.
        url: whether it has the option `--url`, which sets `URL_VARIABLE`, and those for the certificates of both sides;
            if not, giving `--url` is an error.
        own: exit statuses with a special meaning, such as `s0="the command's own"`.
    """
    meanings = {int(name[1:]): meaning for name, meaning in own.items()} | {int(n): _MEANINGS[int(n)] for n in usual}
    table = [
        textwrap.fill(meaning, 74, initial_indent=f"  {status:<4} ", subsequent_indent=" " * 7)
        for status, meaning in [*sorted(meanings.items()), (INTERRUPTED, "interrupted")]
    ]

    def declared(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        groups: dict[str, Any] = {
            name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
        }

        @functools.wraps(function)
        def run(
            *arguments: Any,
            home: str | None = None,
            backend: str | None = None,
            url: str | None = None,
            ca: str | None = None,
            certificate: str | None = None,
            **options: Any,
        ) -> None:
            with environment(home, backend, url, ca, certificate):
                if not begins and not os.environ.get(URL_VARIABLE):
                    check_there(find_home())
                for name, group in groups.items():
                    options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
                function(*arguments, **options)

        parameters = [each for one in signature.parameters.values() for each in _options_of(one)]
        parameters += _options_of_all(backend=backend, url=url)
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "\b", "Exit status:", *table])
        return run

    return declared


def _options_of_all(*, backend: bool, url: bool) -> list[inspect.Parameter]:
    """Returns the options that all verbs have, and those that many have."""
    shared = (
        (True, "home", None, Home),
        (backend, "backend", DEFAULT_BACKEND, Backend),
        (url, "url", None, Url),
        (url, "ca", None, Ca),
        (url, "certificate", None, Certificate),
        (not url, "url", None, NoUrl),
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for has, name, default, annotation in shared
        if has
    ]


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Returns the options of a group, if a parameter is one; else the parameter."""
    if not is_dataclass(group := parameter.annotation):
        return [parameter]
    types = get_type_hints(group, include_extras=True)
    return [
        parameter.replace(name=each.name, default=each.default, annotation=types[each.name]) for each in fields(group)
    ]


def parse_size(text: str) -> int:
    """Returns the number of bytes of `500M`, `2G`, `1048576`; raises `UsageError` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f'"{text}" is no size; write it as 500M or 2G')
    return int(float(match[1]) * UNITS[match[2].upper()])


def network(hosts: list[str] | None) -> str | list[str] | None:
    """Returns the network that the values of `--network` mean (see `tvsnap.Network`), or None without a value.

    Raises:
        UsageError: the values contradict each other.
    """
    if not hosts:
        return None
    words = [host for host in hosts if host in ("none", "public")]
    if words and hosts[1:]:
        raise UsageError(f"--network {words[0]} goes with no other --network")
    return words[0] if words else hosts
