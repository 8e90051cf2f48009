"""Captures an idle shell as data and recreates it in a fresh sandbox, exactly or not at all, without CRIU.

The image consists of the shell's report on itself, its dump (`rc`), the further findings of a subshell (the probe),
and the terminal's output. A fresh, bare shell (`TVSNAP_BARE` in PID 1's environment) gets commands that
make it the same; then its own dump and probe are compared with those of the image. `capture` refuses, with the reason,
a state that would be lost; a difference in the comparison makes the image unusable.

Typed-ahead keys that were not read yet are invisible, and so not compared.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, fields

from tvsnap.guest.protocol import Guest, GuestInfo
from tvsnap.host.attempts import AttemptFailed
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel.process_report import OpenFile, ShellHold
from tvsnap.sandboxes.shell.dump import DYNAMIC, NotUnderstood, ShellDump, Variable, parse_dump, quote
from tvsnap.sandboxes.shell.probe import PROBE_LIMIT, ProbeFailed, ShellProbe, probe_command, read_probe

_FIRST_PID = 16
"""Process id of the first shell that PID 1 starts."""
_MOST_PIDS = 1000
"""Process ids that are used up, some 0.5 ms each, until a shell that was not the first has its own again."""
_TIMEOUT = 20.0
_SETTLE = 0.2  # seconds
_TERMINAL = frozenset({0, 1, 2, 255})
_PIPES = frozenset({27, 28})
_COMMAND = 29
_TIMER_SLACK = "50000"
"""Nanoseconds, the default."""
_SMALL = re.compile(r'"\d{1,2}"')
_CALLER = re.compile(r"\b(?:LINENO|BASH_LINENO|BASH_SOURCE|caller)\b")
_SWITCHED = (
    " errtrace", " expand_aliases", " functrace", " inherit_errexit", " interactive-comments", " interactive_comments",
    " shift_verbose", " sourcepath",
)  # fmt: skip
"""Options that the modes `posix` and `extdebug` switch."""
_TOLD = frozenset({"BASHOPTS", "SHELLOPTS"})
"""Variables that cannot be set, but that commands may compare: they follow from the options."""
_CASE = frozenset("iluc")
"""Attributes that change a value as it is assigned."""


@dataclass(frozen=True, slots=True)
class ShellImage:
    """An idle shell and the contents of its terminal.

    Attributes:
        pid: its process id inside.
        dump: its report on its state.
        probe: the answers of a subshell.
        origin: the time when its clock `SECONDS` was 0, seconds since 1970.
        inner: see `GuestInfo`.
        commands: how many commands it was given.
        shown: the stored part of the bytes that its terminal was sent.
    """

    pid: int
    dump: bytes
    probe: ShellProbe
    origin: float
    inner: str
    commands: int
    shown: bytes

    def to_bytes(self) -> bytes:
        """Returns the image as JSON."""
        return json.dumps(asdict(self), default=lambda data: data.decode("latin-1")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ShellImage:
        """Parses the result of `to_bytes`; raises ValueError, KeyError or TypeError if it is something else."""
        stored = json.loads(data)
        return cls(**{**stored, **{name: bytes(stored[name], "latin-1") for name in ("dump", "shown")}})


def capture(
    guest: Guest, *, others: Collection[str], hold: Callable[[], ShellHold], numbered: bool = True
) -> ShellImage:
    """Captures a sandbox's idle shell, which goes on undisturbed.

    Raises NotCheckpointable with the reason if it cannot be captured, and AttemptFailed if it changed meanwhile.

    Args:
        guest: the sandbox's PID 1.
        others: command lines of the sandbox's processes beyond its PID 1 and its shell.
        hold: returns the shell's present resources.
        numbered: a fork can choose the process id of its shell; otherwise ids are used up one by one.
    """
    if others:
        raise NotCheckpointable(f"only an idle shell can be captured without CRIU, and this runs: {', '.join(others)}")
    dump = guest.shell_state()
    _check_descriptors(hold)
    info = guest.info()
    if dump is None:
        raise NotCheckpointable("the shell is not idle: its terminal shows a prompt or runs a program")
    try:
        shell = parse_dump(dump)
    except NotUnderstood as reason:
        raise NotCheckpointable(f"the shell holds something that only CRIU can capture: {reason}") from None
    _check(shell, info, numbered=numbered)
    shown, columns, rows = guest.terminal()
    _check_window(shell, columns, rows)
    outcome = guest.run(probe_command(shell, keys=True), _TIMEOUT, PROBE_LIMIT)
    guest.put_terminal_back(shown, info.shown, info.commands)
    try:
        probe, seconds = read_probe(outcome.output)
    except ProbeFailed as reason:
        raise NotCheckpointable(f"a subshell cannot tell what the shell holds: {reason}") from None
    if not info.ordinary:
        raise NotCheckpointable("what the kernel keeps of the shell was changed: its priority, core dump filter, ...")
    after = guest.shell_state()
    if after is None or _differences(shell, parse_dump(after)) or guest.info() != info:
        raise AttemptFailed("the shell changes while it is looked at")
    return ShellImage(
        pid=info.shell,
        dump=dump,
        probe=probe,
        origin=time.time() - seconds,
        inner=info.inner,
        commands=info.commands,
        shown=shown,
    )


def restore(guest: Guest, image: ShellImage, number: Callable[[int], None]) -> None:
    """Makes the bare shell of a fresh sandbox like the captured one.

    Raises AttemptFailed, with the differences in the message, if the shell did not become the same.

    Args:
        guest: the sandbox's PID 1, started with `TVSNAP_BARE`; its files are those of the captured sandbox.
        image: the result of `capture`.
        number: makes the next process have the id after the given one, if that is possible.
    """
    _take_pid(guest, image.pid, number)
    fresh = guest.shell_state()
    if fresh is None:
        raise AttemptFailed("the fresh shell did not start")
    try:
        wanted = parse_dump(image.dump)
        script = [*_script(wanted, parse_dump(fresh), image.origin), probe_command(wanted).decode("latin-1")]
    except NotUnderstood as reason:
        raise AttemptFailed(
            f"the fresh shell cannot be compared with the captured one: {reason}", machine=False
        ) from None
    outcome = guest.run("\n".join(script).encode("latin-1"), _TIMEOUT, PROBE_LIMIT)
    state = guest.shell_state()
    if outcome.shell_lost or outcome.timed_out or state is None:
        raise AttemptFailed("the fresh shell ended or hung while it was made like the captured one")
    guest.put_terminal_back(image.shown, int(image.inner.partition("-")[0]), image.commands)
    try:
        differ = _differences(wanted, parse_dump(state))
        probe, _ = read_probe(outcome.output)
    except (NotUnderstood, ProbeFailed) as reason:
        raise AttemptFailed(
            f"the fresh shell cannot be compared with the captured one: {reason}", machine=False
        ) from None
    differ += [name for name in sorted({*probe, *image.probe}) if probe.get(name) != image.probe.get(name)]
    info = guest.info()
    if (info.inner, info.commands) != (image.inner, image.commands):
        differ.append("the terminal")
    if differ:
        raise AttemptFailed(f"the shell cannot be made as it was: {', '.join(differ)} would differ")


def _take_pid(guest: Guest, pid: int, number: Callable[[int], None]) -> None:
    """Replaces the shell by one with this process id, which commands see: a shell that ended had a successor."""
    if guest.info().shell == pid:
        return
    # If the id cannot be chosen, subshells use up ids until the next one is `pid`; then the shell exits, and its
    # successor gets that id.
    last = "read -r last last last last last </proc/loadavg"
    number(pid - 1)
    guest.run(f"while {last}; (( last < {pid - 1} )); do ( : ); done; exit".encode(), _TIMEOUT, 4096)
    guest.shell_state()  # wait for the successor
    if guest.info().shell != pid:
        raise AttemptFailed(f"process id {pid}, the captured shell's, could not be had")


def _check_descriptors(hold: Callable[[], ShellHold]) -> None:
    """Raises NotCheckpointable if the shell has other descriptors than its terminal and its pipes to PID 1.

    A shell that has just reported its state still has to restore its descriptors, which takes some microseconds.
    """
    deadline = time.monotonic() + _SETTLE
    while (reason := _foreign(hold().files)) and time.monotonic() < deadline:
        time.sleep(0.001)
    if reason:
        raise NotCheckpointable(f"the shell {reason}")


def _foreign(files: Iterable[OpenFile]) -> str:
    """Returns a shell's change to its descriptors; empty if there is none."""
    missing = {*_TERMINAL, *_PIPES, _COMMAND}
    for file in files:
        own = (
            (file.number in _TERMINAL and file.target == "/dev/pts/0")
            or (file.number in _PIPES and file.target.startswith("pipe:"))
            or (file.number == _COMMAND and file.target.startswith("/memfd:command"))
        )
        if not own:
            return f"holds {file.target} open as descriptor {file.number}"
        if int(file.flags, 8) & os.O_NONBLOCK:
            return f"does not wait at its descriptor {file.number} (O_NONBLOCK)"
        missing.discard(file.number)
    return f"has closed its descriptor {min(missing)}" if missing else ""


def _check(dump: ShellDump, info: GuestInfo, *, numbered: bool) -> None:
    """Raises NotCheckpointable if anything would be lost, or would take effect while a shell is inspected or made."""
    for refused, reason in _reasons(dump, info, numbered):
        if refused:
            raise NotCheckpointable(f"{reason}, which only CRIU can capture")


def _reasons(dump: ShellDump, info: GuestInfo, numbered: bool) -> Iterator[tuple[bool, str]]:
    trapped = set(re.findall(r"(\w+)$", dump.traps, re.MULTILINE))
    traced = "set -o errtrace" in dump.set_options or "set -o functrace" in dump.set_options
    random = dump.variables.get("RANDOM")
    optind = dump.variables.get("OPTIND")
    yield not info.idle, "the shell is not idle"
    yield not info.plain, "the terminal's modes were changed, or there are System V objects"
    many = not numbered and info.shell - _FIRST_PID > _MOST_PIDS
    yield many, f"the shell was started anew, as process {info.shell}"
    yield bool(dump.background), f"the shell remembers a background job, {dump.background} ($!)"
    yield bool(dump.history), "the shell has a command history"
    yield bool(dump.jobs), "the shell has jobs"
    yield dump.slack not in ("", _TIMER_SLACK), "the shell has a timer slack of its own"
    # Once used, the variable has a value, whether it was seeded or only read: the seed itself is invisible.
    yield random is not None and random.has_value, "the shell's RANDOM was used, and may have been seeded"
    yield bool(trapped & {"DEBUG", "RETURN", "SIGCHLD"}), "a trap on DEBUG, RETURN or CHLD runs while a shell is made"
    yield "ERR" in trapped and (bool(dump.status) or traced), "a trap on ERR runs while a shell is made"
    for option in ("allexport", "onecmd", "verbose", "xtrace"):
        yield f"set -o {option}" in dump.set_options, f"the option {option} acts while a shell is made"
    yield not _in_step(dump), "a variable has switched an option and BASHOPTS does not yet tell"
    yield _sees_lines(dump), "a function can see its source or line numbers"
    yield optind is not None and not _SMALL.fullmatch(optind.scalar or ""), "OPTIND is no small number"


def _check_window(dump: ShellDump, columns: int, rows: int) -> None:
    """Raises NotCheckpointable if a look would change LINES or COLUMNS, which the shell sets with checkwinsize."""
    for name, size in (("COLUMNS", columns), ("LINES", rows)):
        variable = dump.variables.get(name)
        same = variable is not None and variable.scalar == f'"{size}"'
        if "shopt -s checkwinsize" in dump.shell_options and not same:
            raise NotCheckpointable(f"{name} is not yet what the shell will make of it, which only CRIU can capture")


def _in_step(dump: ShellDump) -> bool:
    """Whether BASHOPTS agrees with the options: a variable such as GLOBIGNORE switches one without updating it."""
    listed = dump.variables.get("BASHOPTS")
    on = {line.split()[2] for line in dump.shell_options if line.startswith("shopt -s ")}
    return listed is not None and set((listed.scalar or "").strip('"').split(":")) == on


def _sees_lines(dump: ShellDump) -> bool:
    """Whether anything may use functions' line numbers or source, which bash does not print with them."""
    if all(name.startswith("__tvsnap_") for name in dump.function_flags):
        return False
    values = (variable.scalar or " ".join(variable.elements or ()) for variable in dump.variables.values())
    return any(_CALLER.search(text) for text in (dump.functions, dump.aliases, dump.traps, *values))


# -- making a shell like another ------------------------------------------------------------------------------------


def _script(wanted: ShellDump, fresh: ShellDump, origin: float) -> Iterator[str]:
    """Yields commands that make a fresh shell like the wanted one; those that affect how commands work come last."""
    moved = wanted.directories != fresh.directories or wanted.cwd != fresh.cwd
    if moved:
        yield rf"\builtin cd -L -- {quote(wanted.cwd)}"
        for path in reversed(wanted.directories[1:]):
            yield rf"\builtin pushd -n {quote(path)} >/dev/null"
    if (wanted.functions, wanted.function_flags) != (fresh.functions, fresh.function_flags):
        yield from _functions(wanted, fresh)
    for name in sorted({*wanted.variables, *fresh.variables}):
        there = fresh.variables.get(name)
        if moved and name in ("PWD", "OLDPWD"):
            there = Variable(there.flags if there else frozenset(), '"as cd has set it"', None)
        yield from _variable(name, wanted.variables.get(name), there)
    if "SECONDS" in wanted.variables:
        seconds = int(time.time() - origin)
        yield rf"for __tvsnap_m in 1 2 3; do SECONDS={seconds}; __tvsnap_clock"
        yield rf"[[ ${{__tvsnap_o% *}} != {seconds} ]] || \builtin break; done"
        yield f'__tvsnap_start="{seconds - wanted.ahead} ${{__tvsnap_o#* }}"'
    if wanted.aliases != fresh.aliases:
        yield r"\builtin unalias -a"
        yield from _builtin(wanted.aliases, "alias ")
    if wanted.completions != fresh.completions:
        yield r"\builtin complete -r"
        # Newer ones come first in a hash chain: in reverse, the original order results.
        yield from (rf"\builtin {line}" for line in reversed(wanted.completions))
    yield from _arguments(wanted, fresh)
    for kind, limits, limits_there in (
        ("S", wanted.soft_limits, fresh.soft_limits),
        ("H", wanted.hard_limits, fresh.hard_limits),
    ):
        for flag, value in limits.items() - limits_there.items():
            yield rf"\builtin ulimit -{kind} -{flag} {value}"
    yield from _options(wanted, fresh)
    if wanted.umask != fresh.umask:
        yield rf"\builtin umask {wanted.umask}"
    if wanted.traps != fresh.traps:
        yield from _builtin(wanted.traps, "trap ")
    for name in wanted.disabled:
        yield rf"\builtin enable -n {name}"


def _functions(wanted: ShellDump, fresh: ShellDump) -> Iterator[str]:
    for name in fresh.function_flags:
        if name not in wanted.function_flags:
            yield rf"\builtin unset -f {quote(name)}"
    yield r"\builtin shopt -u expand_aliases; \builtin shopt -s extglob"  # printed functions have no aliases
    yield wanted.functions
    for line in fresh.shell_options:
        if line.split()[2] in ("expand_aliases", "extglob"):
            yield rf"\builtin {line}"
    for name, flags in wanted.function_flags.items():
        if flags != "f":
            yield rf"\builtin declare -{flags} {quote(name)}"


def _variable(name: str, wanted: Variable | None, fresh: Variable | None) -> Iterator[str]:
    """Yields commands that give one variable its value and attributes.

    If possible it is changed in place, because the order of a program's environment is the order of creation.
    """
    if name in DYNAMIC:
        if wanted is None:
            yield rf"\builtin unset -v {name}"
        elif fresh is not None and wanted.flags - _CASE != fresh.flags - _CASE:
            yield from _attributes(name, wanted.flags - _CASE, fresh.flags - _CASE)
        return
    if wanted == fresh:
        return
    kinds = frozenset("aAn")
    if fresh is not None:
        is_kept = wanted is not None and wanted.flags & kinds == fresh.flags & kinds
        if not is_kept or (fresh.has_value and wanted is not None and not wanted.has_value):
            yield rf"\builtin unset -{'n' if 'n' in fresh.flags else 'v'} {name}"
            fresh = None
    if wanted is None:
        return
    kind = "".join(sorted(wanted.flags & kinds))
    there = fresh.flags - kinds if fresh is not None else frozenset[str]()
    yield from _attributes(name, frozenset(), there & _CASE)
    if wanted.elements is not None:
        # As with completions: in reverse, a hash table gets the original order.
        elements = reversed(wanted.elements) if kind == "A" else wanted.elements
        yield rf"\builtin declare -{kind} {name}"
        yield f"{name}=({' '.join(elements)})"
    elif wanted.scalar is not None and kind:
        yield rf"\builtin declare -{kind} {name}={wanted.scalar}"
    elif wanted.scalar is not None:
        yield f"{name}={wanted.scalar}"
    else:
        yield rf"\builtin declare -{kind or '-'} {name}"
    yield from _attributes(name, wanted.flags - kinds, there - _CASE)


def _attributes(name: str, wanted: frozenset[str], fresh: frozenset[str]) -> Iterator[str]:
    if fresh - wanted:
        yield rf"\builtin declare +{''.join(sorted(fresh - wanted))} {name}"
    if wanted - fresh:
        yield rf"\builtin declare -{''.join(sorted(wanted - fresh))} {name}"


def _arguments(wanted: ShellDump, fresh: ShellDump) -> Iterator[str]:
    if wanted.arguments != fresh.arguments:
        yield rf"\builtin set -- {wanted.arguments}"
        yield r'[[ $0 == "$1" ]] || BASH_ARGV0=$1'
        yield r"\builtin shift"


def _options(wanted: ShellDump, fresh: ShellDump) -> Iterator[str]:
    there = {*fresh.set_options, *fresh.shell_options}
    changed = [line for line in (*wanted.shell_options, *wanted.set_options) if line not in there]
    modes = [line for line in changed if line.endswith((" posix", " extdebug"))]
    switched = [line for line in (*wanted.shell_options, *wanted.set_options) if modes and line.endswith(_SWITCHED)]
    for line in (*modes, *changed, *switched):
        command, flag, name = line.split()
        if command == "shopt":  # if a variable has not switched it: switching compat44 on would set BASH_COMPAT
            yield rf"\builtin shopt -q {name} {'||' if flag == '-s' else '&&'} \builtin {line}"
        else:
            yield rf"\builtin {line}"
    on = [line for line in wanted.shell_options if line.startswith("shopt -s ") and " compat" not in line]
    if changed and on:  # any switch updates BASHOPTS with the switches by variables
        yield rf"\builtin {on[0]}"


def _builtin(commands: str, start: str) -> Iterator[str]:
    """Yields printed commands (`alias -p`, `trap -p`), protected from an alias or a function of that name."""
    yield re.sub(rf"^{start}", rf"\\builtin {start}", commands, flags=re.MULTILINE)


# -- comparing ------------------------------------------------------------------------------------------------------


def _differences(wanted: ShellDump, actual: ShellDump) -> list[str]:
    """Returns the names of the differences between two shells."""
    names = []
    for name in sorted({*wanted.variables, *actual.variables}):
        one, other = wanted.variables.get(name), actual.variables.get(name)
        if name in DYNAMIC - _TOLD and one is not None and other is not None:
            differs = one.flags - _CASE != other.flags - _CASE
        else:
            differs = one != other
        if differs:
            names.append(f"variable {name}")
    parts = (field.name for field in fields(ShellDump) if field.name != "variables")
    return names + [part.replace("_", " ") for part in parts if getattr(wanted, part) != getattr(actual, part)]
