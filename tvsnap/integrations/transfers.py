"""Files to and from a rollout's sandbox, as calls that are recorded and answered like any other."""

from __future__ import annotations

import base64
import gzip
import io
import shlex
import tarfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tvsnap.model.calls import ToolResult
from tvsnap.model.errors import InfrastructureError

Execute = Callable[[dict[str, Any], float], Awaitable[ToolResult]]
TIMEOUT = 600.0
"""Seconds that packing or unpacking may take, as for Harbor's own transfers."""
_LINE = 120  # characters of base 64
_CHANGED = 1  # tar's exit status where a file grew while it was read, as logs do
_PACK = (
    "[ -e {0} ] || {{ echo 'no such file or directory'; exit 2; }}\n"
    "set -o pipefail; tar -cz {1} 2>/dev/null | base64 -w 0"
)
_UNPACK = "set -e -o pipefail; mkdir -p {0}\nbase64 -d <<'END' | tar -xzpf - --no-same-owner -C {0}\n{1}\nEND\n"


def pack(source: Path, name: str = ".") -> bytes:
    """Returns a file or a folder as an archive that is the same whenever what it holds is the same.

    Modes, links and the times of files are kept; owners are not, and a folder has the time of what is newest in it.

    Args:
        source: the file or folder.
        name: what it is called in the archive.

    Raises:
        OSError: it cannot be read.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, source, name)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    member = archive.gettarinfo(path, name)
    if member is None or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return  # sockets, pipes and devices hold nothing
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = int(_newest(path) if member.isdir() else member.mtime)
    if member.isreg():
        with path.open("rb") as file:
            archive.addfile(member, file)
        return
    archive.addfile(member)
    if member.isdir():
        for entry in sorted(path.iterdir()):
            _add(archive, entry, f"{name}/{entry.name}")


def _newest(folder: Path) -> float:
    """Returns the time of the newest thing in a folder that is no folder itself; 0 where there is none."""
    return max((path.lstat().st_mtime for path in folder.rglob("*") if path.is_symlink() or path.is_file()), default=0)


async def put(execute: Execute, archive: bytes, folder: str) -> None:
    """Unpacks an archive in a folder of the sandbox, as root.

    Args:
        execute: makes a call of the tool `exec`, of these arguments and with this timeout (seconds).
        archive: what `pack` returned.
        folder: the folder, which is made where it is missing.

    Raises:
        InfrastructureError: it could not be unpacked; the message holds what was printed.
        TvsnapError: what `execute` raises.
    """
    text = base64.b64encode(gzip.compress(archive, mtime=0)).decode()
    lines = "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
    command = _UNPACK.format(shlex.quote(folder), lines)
    result = await execute({"command": command, "user": "root", "cwd": "/"}, TIMEOUT)
    if result.exit_code != 0:
        raise InfrastructureError(f"what was sent to {folder} could not be unpacked there: {result.output.strip()}")


async def get_file(execute: Execute, path: str) -> bytes:
    """Returns an archive of one file of the sandbox, read by root.

    Args:
        execute: makes a call of the tool `exec`, of these arguments and with this timeout (seconds).
        path: the file's path; a link is followed.

    Raises:
        FileNotFoundError: it could not be read; the message holds what was printed.
        TvsnapError: what `execute` raises.
    """
    at = PurePosixPath(path)
    return await _get(execute, path, f"-h -C {shlex.quote(str(at.parent))} -- {shlex.quote(at.name)}")


async def get_folder(execute: Execute, path: str, exclude: Sequence[str] = ()) -> bytes:
    """Returns an archive of what a folder of the sandbox holds, read by root.

    Args:
        execute: makes a call of the tool `exec`, of these arguments and with this timeout (seconds).
        path: the folder's path.
        exclude: patterns of names that are left out, as tar takes them.

    Raises:
        FileNotFoundError: it could not be read; the message holds what was printed.
        TvsnapError: what `execute` raises.
    """
    without = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in exclude)
    return await _get(execute, path, f"{without} -C {shlex.quote(path)} .")


async def _get(execute: Execute, path: str, options: str) -> bytes:
    command = _PACK.format(shlex.quote(path), options)
    result = await execute({"command": command, "user": "root", "cwd": "/"}, TIMEOUT)
    if result.truncated:
        raise InfrastructureError(f"{path} is too large to be fetched: its archive is longer than what a call returns")
    if result.exit_code not in (0, _CHANGED):
        raise FileNotFoundError(f"{path} could not be fetched from the sandbox: {result.output.strip()[-2000:]}")
    return base64.b64decode(result.output)
