"""Parses a shell's report on its state into fingerprints, and into items for people."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from tvsnap.guest.declarations import Declaration, declarations
from tvsnap.guest.protocol import GuestInfo
from tvsnap.sandboxes.shell.words import hidden_commands

# Variables that change by themselves or with every command: their values are not part of the state.
VOLATILE = {
    "_", "BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL",
    "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "HISTCMD", "LINENO", "PIPESTATUS", "SECONDS", "SRANDOM",
}  # fmt: skip
_NOT_TOLD = {*VOLATILE, "", "RANDOM"}  # variables that are not listed for people
_HEAD = re.compile(rb"declare -([-a-zA-Z]+) ")
_PLAIN = re.compile(rb"(?:\"[^\"\\\n\x01]*\"|\((?:\[\d+\]=\"[^\"\\\n\x01]*\" ?)*\))\n")
"""A value and its line end that can be replaced by any other such value without effect on how the rest is parsed."""
_MOST_KEPT, _MOST_SHARED = 1 << 20, 1 << 16
"""Bytes of a report that is kept for its sandbox, and of one for all."""
_MOST_RECENT = 64  # reports
_CLOCK = re.compile(rb"\x01clock\n(\d{0,18}) (\d{1,18})\n(\d{0,18}) (\d{1,18})\n")


V = TypeVar("V")


def declared(variables: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the declarations in a shell's report by name, without our own; text that is none has an empty name."""
    end = 0
    for name, start, after in _found(variables):
        yield "", variables[end:start]
        if not name.startswith("__tvsnap_"):
            yield name, variables[start:after]
        end = after
    yield "", variables[end:]


def _found(variables: bytes) -> Iterable[Declaration]:
    """Returns the declarations in a shell's report: of a short one, those that were found when it was last read."""
    return _found_again(variables) if len(variables) <= _MOST_SHARED else declarations(variables)


@lru_cache(maxsize=16)  # a new report is read by several readers, one after the other
def _found_again(variables: bytes) -> tuple[Declaration, ...]:
    return tuple(declarations(variables))


class ShellReports:
    """A shell's last report, and the results of parsing it.

    Parsing takes milliseconds, and most reports differ from the last one, or from that of another sandbox, only in
    values that are not part of the state. So reports are kept as the pieces between such values.
    """

    def __init__(self) -> None:
        self._dump: bytes | None = None
        self._last: _Read | None = None

    def seen(self, dump: bytes | None, info: GuestInfo) -> tuple[str, frozenset[str]]:
        """Returns `Observation.shell` and `Observation.hidden` for the report `dump`; None for no report."""
        if dump is None:
            return secrets.token_hex(), frozenset()
        fingerprint = self.come_to(shell_fingerprint, dump)
        return f"{fingerprint} {info.inner} {info.kernel}", self.come_to(shell_hidden, dump)

    def come_to(self, reader: Callable[[bytes], V], dump: bytes) -> V:
        """Returns `reader(dump)`, possibly cached; `reader` must ignore values that are not part of the state."""
        if len(dump) > _MOST_KEPT:
            self._dump = self._last = None
            return reader(dump)
        last = self._last
        if last is None or (dump is not self._dump and not last.pieces.are_of(dump)):
            last = _read(dump)
        self._dump, self._last = dump, last
        if reader not in last.results:
            last.results[reader] = reader(dump)
        result: V = last.results[reader]
        return result


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The pieces of a shell's report between plainly quoted values that are not part of the state.

    Attributes:
        declared: the text before each such value of a variable.
        following: the text between the last of them and the clock.
        ahead: the result of `_ahead`; None if there is no clock.
        rest: the text after the clock.
    """

    declared: tuple[bytes, ...]
    following: bytes
    ahead: bytes | None
    rest: bytes

    @classmethod
    def of(cls, dump: bytes) -> _Pieces:
        variables, _, _ = dump.partition(b"\1")
        declared, end = [], 0
        for name, start, after in _found(variables):
            if name not in VOLATILE and not name.startswith("__tvsnap_"):
                continue
            value = variables.find(b"=", start, after) + 1
            if value and (plain := _PLAIN.match(variables, value)) and plain.end() == after:
                declared.append(variables[end:value])
                end = after
        clock = _CLOCK.search(dump, len(variables) + 1)
        if clock is None:
            return cls(tuple(declared), dump[end:], None, b"")
        return cls(tuple(declared), dump[end : clock.start()], _ahead(clock), dump[clock.end() :])

    def are_of(self, dump: bytes) -> bool:
        """Whether a report yields the same results as the one that these pieces are of."""
        at = 0
        for piece in self.declared:
            value = _PLAIN.match(dump, at + len(piece)) if dump.startswith(piece, at) else None
            if value is None:
                return False
            at = value.end()
        if not dump.startswith(self.following, at):
            return False
        at += len(self.following)
        if self.ahead is not None:
            clock = _CLOCK.match(dump, at)
            if clock is None or _ahead(clock) != self.ahead:
                return False
            at = clock.end()
        return dump[at:] == self.rest


class _Read(NamedTuple):
    """A report, and the results of reading it."""

    pieces: _Pieces
    results: dict[Callable[[bytes], Any], Any]


_recent: OrderedDict[_Pieces, _Read] = OrderedDict()
"""The last reports of all sandboxes: rollouts of one task come to the same."""
_lock = threading.Lock()


def _read(dump: bytes) -> _Read:
    """Returns the results of reading a report that equals `dump` but for values that are not part of the state."""
    entry = _Read(_Pieces.of(dump), {})
    if len(dump) > _MOST_SHARED:
        return entry
    with _lock:
        entry = _recent.setdefault(entry.pieces, entry)
        _recent.move_to_end(entry.pieces)
        if len(_recent) > _MOST_RECENT:
            _recent.popitem(last=False)
    return entry


def shell_fingerprint(dump: bytes) -> str:
    """Returns a hash of the shell's state as reported, without the parts that change by themselves."""
    variables, _, rest = dump.partition(b"\1")
    hasher = hashlib.sha256(without_clock(rest))
    for name, text in declared(variables):
        if name in VOLATILE:  # bash adds -i to variables that it computes when they are first read
            head = _HEAD.match(text)
            text = b"%s %s\n" % (name.encode(), head[1].replace(b"i", b"").strip(b"-") if head else text)
        hasher.update(text)
    return hasher.hexdigest()


def shell_hidden(dump: bytes) -> frozenset[str]:
    """Returns the commands of a shell that may change state that it does not report; see `shell.words`."""
    sections = dict(part.partition("\n")[::2] for part in dump.decode("latin-1").split("\1")[1:])
    return hidden_commands(*(sections.get(title, "") for title in ("functions", "aliases", "traps", "options")))


def without_clock(sections: bytes) -> bytes:
    """Returns the report with the offset of SECONDS in place of its clock."""
    return _CLOCK.sub(_ahead, sections, count=1)


def _ahead(clock: re.Match[bytes]) -> bytes:
    """Returns by how many seconds SECONDS was set ahead since the shell started, according to its clock section."""
    then, now = clock.group(1, 2), clock.group(3, 4)
    return b"\1ahead\n%d\n" % (int(now[0]) - int(now[1]) - int(then[0]) + int(then[1])) if then[0] and now[0] else b""


def shell_items(dump: bytes) -> dict[str, str]:
    """Returns the shell's state by name, for people: `var X`, `function f`, `alias`, `option`, `cwd`, ..."""
    variables, *sections = dump.split(b"\1")
    items = {
        f"var {name}": text.decode("utf-8", "replace").rstrip("\n").removeprefix("declare ")
        for name, text in declared(variables)
        if name not in _NOT_TOLD
    }
    for section in sections:
        title, _, text = section.decode("utf-8", "replace").partition("\n")
        if title == "functions":
            for function in text.split("\n}\n")[:-1]:
                name, begins, _ = function.partition(" () ")
                if begins and not name.startswith("__tvsnap_"):
                    items[f"function {name}"] = f"{function}\n}}"
        elif title == "aliases":
            for line in text.splitlines():
                name, _, value = line.removeprefix("alias ").partition("=")
                items[f"alias {name}"] = value
        elif title == "options":
            for line in text.splitlines():
                if not line.startswith("enable ") or line.startswith("enable -n "):
                    command, flag, name = (*line.split(), "", "", "")[:3]
                    items[f"option {name}"] = f"{command} {flag}"
        elif title == "limits":
            items["umask"], _, limits = text.partition("\n")
            for line in limits.splitlines():
                name, _, value = line.partition(") ")
                items[f"limit {re.sub(r' +[(].*', '', name)}"] = value
        elif title == "last":
            items["status"], _, items["background"] = text.strip().partition(" ")
        elif title not in ("clock", "slack"):
            items[title] = text.strip("\n")
    return {name: value for name, value in items.items() if value or name == "arguments"}
