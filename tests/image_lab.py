"""What tests of images share: small trees, archives and descriptions, and what is left of builds."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
CAP_NET_RAW = 1 << 13


def silent(done: float | None) -> None:
    """A measure of progress that nobody watches."""


class Recorder:
    """Progress, remembered."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.lines: list[str] = []
        self.fractions: list[float | None] = []
        self.notes: list[str] = []

    def step(self, index: int, total: int, text: str) -> None:
        self.steps.append(f"{index}/{total} {text}")

    def output(self, line: str) -> None:
        self.lines.append(line)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def fraction(self, done: float | None) -> None:
        self.fractions.append(done)


def add_program(root: Path, program: str, dest: str) -> None:
    """Copies a program and the libraries that it needs."""
    libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    needed = [word for word in libraries.split() if word.startswith("/")]
    for path, target in [(program, dest), *((path, path) for path in needed)]:
        copy = root / target.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy(path, copy)


def write_spec(folder: Path, text: str, **files: str | bytes) -> Path:
    """Writes an image's folder; `__` in the name of a file stands for its dot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "image.yaml").write_text(text)
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def tar_of(*members: tuple[str, dict[str, Any], bytes]) -> bytes:
    """A tar of members: name, fields of TarInfo, contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, fields, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def file_member(name: str, content: bytes = b"x", **fields: object) -> tuple[str, dict[str, Any], bytes]:
    return name, {"mode": 0o644, **fields}, content


def dir_member(name: str, **fields: object) -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": tarfile.DIRTYPE, "mode": 0o755, **fields}, b""


def link_member(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, dict[str, Any], bytes]:
    return name, {"type": kind, "linkname": target}, b""


def left_of_builds(home: Path) -> list[str]:
    images = home / "images"
    kept = ("names", "recipes", "layers")
    shared = [path for path in images.glob("layers/*") if path.is_dir()]
    return sorted(path.name for path in (*images.iterdir(), *shared) if path.name not in kept)
