"""Notes on what commits lose, written beside a snapshot, and their use in its forks."""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterable
from pathlib import Path

from tvsnap.guest.protocol import INIT, Guest
from tvsnap.host.attempts import AttemptFailed
from tvsnap.model.errors import NotCheckpointable
from tvsnap.plugins.docker.inside import MOST, TIMEOUT, list_inside, run_tool
from tvsnap.plugins.docker.snapshot_store import LENT, LINKS, TIMES
from tvsnap.sandboxes.criu import refusals
from tvsnap.sandboxes.looks import observing


def note_lent(guest: Guest, paths: Iterable[str], directory: Path) -> None:
    """Records changed lent files of a sandbox in the directory of its snapshot."""
    entries = {entry.path: entry for entry in list_inside(guest, "/etc")}
    notes: dict[str, dict[str, object] | None] = dict.fromkeys(paths)
    for path in notes:
        if (entry := entries.get(path)) and not stat.S_ISREG(entry.mode):
            raise NotCheckpointable(f"{path}, which the engine lends, was made something else than a file")
        if entry:
            text = run_tool(guest, "get", path, str(MOST)).decode("latin-1")
            notes[path] = {"text": text, "mode": f"{stat.S_IMODE(entry.mode):o}", "owner": f"{entry.uid}:{entry.gid}"}
    (directory / LENT).write_text(json.dumps(notes))


def restore_lent(guest: Guest, directory: Path) -> None:
    """Restores the lent files of a fork from the directory of its snapshot."""
    with contextlib.suppress(FileNotFoundError):
        for path, note in json.loads((directory / LENT).read_text()).items():
            if note is None:
                script_inside(guest, 'rm -f "$1"', path)
            else:
                script = 'cat >"$1" && chmod "$2" "$1" && { [ "$3" = 0:0 ] || chown "$3" "$1"; }'
                script_inside(guest, script, path, note["mode"], note["owner"], text=note["text"].encode("latin-1"))


def script_inside(guest: Guest, script: str, *arguments: str, text: bytes = b"") -> None:
    """Runs a script as root inside a sandbox that is being made; its first argument is the file it is about."""
    _run(guest, ["/bin/bash", "-c", script, "-", *arguments], text, f"{arguments[0]} could not be made as it was")


def _run(guest: Guest, command: list[str], text: bytes, otherwise: str) -> None:
    outcome = guest.execute(command, timeout=TIMEOUT, limit=4096, user="root", stdin=text)
    if outcome.exit_code != 0:
        reason = outcome.output.decode(errors="replace").strip()
        raise AttemptFailed(f"{otherwise}: {reason}", machine=refusals.is_trouble(reason))


def note_links(entries: Iterable[observing.Entry], directory: Path) -> None:
    """Records which names are of one file: if written in a fork, each would become a separate file."""
    if groups := list(observing.linked(entries).values()):
        (directory / LINKS).write_text(json.dumps(groups))


def read_links(directory: Path) -> list[list[str]]:
    with contextlib.suppress(FileNotFoundError):
        groups: list[list[str]] = json.loads((directory / LINKS).read_text())
        return groups
    return []


def amend(guest: Guest, directory: Path) -> None:
    """Sets the times of files in a fork that were recorded in the directory of its snapshot."""
    notes = directory / TIMES
    if notes.exists():
        _run(guest, [INIT, "amend"], notes.read_bytes(), "the times of its files could not be set")
