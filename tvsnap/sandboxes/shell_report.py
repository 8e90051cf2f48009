"""What a shell's report says of its state: fingerprints of it, and its items for people."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator

from tvsnap.guest.declarations import declarations
from tvsnap.guest.protocol import GuestInfo
from tvsnap.sandboxes.shell.words import hidden_commands

# Variables that change by themselves or with every command: their values are no part of the state.
VOLATILE = {
    "_", "BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL",
    "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "HISTCMD", "LINENO", "PIPESTATUS", "SECONDS", "SRANDOM",
}  # fmt: skip
_NOT_TOLD = {*VOLATILE, "", "RANDOM"}  # variables that are not listed for people
_HEAD = re.compile(rb"declare -([-a-zA-Z]+) ")
_CLOCK = re.compile(rb"\x01clock\n(\d{0,18}) (\d{1,18})\n(\d{0,18}) (\d{1,18})\n")


def declared(variables: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the declarations in a shell's report by name, but for our own; without a name what is none of them."""
    end = 0
    for each in declarations(variables):
        yield "", variables[end : each.start]
        if not each.name.startswith("__tvsnap_"):
            yield each.name, variables[each.start : each.end]
        end = each.end
    yield "", variables[end:]


def seen(dump: bytes | None, info: GuestInfo) -> tuple[str, frozenset[str]]:
    """Returns `Observation.shell` and `Observation.hidden` of a shell that said `dump`, or nothing."""
    if dump is None:
        return secrets.token_hex(), frozenset()
    return f"{shell_fingerprint(dump)} {info.inner} {info.kernel}", shell_hidden(dump)


def shell_fingerprint(dump: bytes) -> str:
    """Returns a hash of what the shell said of its state, without what changes by itself."""
    variables, _, rest = dump.partition(b"\1")
    hasher = hashlib.sha256(without_clock(rest))
    for name, text in declared(variables):
        if name in VOLATILE:  # what bash computes gets -i when it is first read
            head = _HEAD.match(text)
            text = b"%s %s\n" % (name.encode(), head[1].replace(b"i", b"").strip(b"-") if head else text)
        hasher.update(text)
    return hasher.hexdigest()


def shell_hidden(dump: bytes) -> frozenset[str]:
    """Returns the commands of a shell that may change what it does not tell; see `shell.words`."""
    sections = dict(part.partition("\n")[::2] for part in dump.decode("latin-1").split("\1")[1:])
    return hidden_commands(*(sections.get(title, "") for title in ("functions", "aliases", "traps", "options")))


def without_clock(sections: bytes) -> bytes:
    """Returns what the shell said, with how far SECONDS was set ahead in place of what its clock shows."""
    return _CLOCK.sub(_ahead, sections, count=1)


def _ahead(clock: re.Match[bytes]) -> bytes:
    """Returns by how many seconds SECONDS was set ahead since the shell began, from what it said with the clock."""
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
