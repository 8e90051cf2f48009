"""The build context of a Dockerfile: the files that are sent to the builder, without those in .dockerignore."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import IO, cast

from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.images.rootfs import file_digest
from tvsnap.images.small_files import read_small, read_small_text

_IGNORE = ".dockerignore"


def context_signature(base: DockerfileBase) -> str:
    """Returns a hash of the files that a build may read: the Dockerfile, and the context's.

    These count by name, mode, content and link target, so that a copy of a context has the same hash.
    Raises OSError if something is unreadable.
    """
    from docker.utils.build import exclude_paths  # here, because it imports a client of HTTP, which takes time

    signature = hashlib.sha256(read_small(base.path) if base.text is None else base.text.encode())
    for name in sorted(exclude_paths(str(base.context), _ignored(base.context), dockerfile=_inside(base))):
        info = (base.context / name).lstat()
        fields: tuple[object, ...] = (name, info.st_mode)
        if stat.S_ISREG(info.st_mode):
            fields += (file_digest(base.context / name),)
        elif stat.S_ISLNK(info.st_mode):
            fields += (os.readlink(base.context / name),)
        signature.update(os.fsencode(repr(fields)))
    return signature.hexdigest()


def pack_context(base: DockerfileBase) -> tuple[IO[bytes], str]:
    """Packs the context into a temporary tar; returns it, and the Dockerfile's name in it.

    A Dockerfile that is elsewhere, or in a description, is added to it. Raises OSError if something is unreadable.
    """
    from docker.utils.build import tar

    name = _inside(base)
    content = base.text
    if content is None and name is None:
        content = read_small_text(base.path)
    name = name or f".dockerfile-{secrets.token_hex(8)}"
    packed = tar(base.context, exclude=_ignored(base.context), dockerfile=(name, content))
    return cast("IO[bytes]", packed), name


def _inside(base: DockerfileBase) -> str | None:
    """Returns the Dockerfile's path in its context; None if it is elsewhere, or not a separate file."""
    if base.text is not None:
        return None
    path, context = base.path.resolve(), base.context.resolve()
    return str(path.relative_to(context)) if path.is_relative_to(context) else None


def _ignored(context: Path) -> list[str]:
    try:
        lines = read_small_text(context / _IGNORE, "replace").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
