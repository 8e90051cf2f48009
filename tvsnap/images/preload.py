"""Makes every dynamically linked program of an image load our library, which fixes its clock and its randomness.

This uses /etc/ld.so.preload, because an environment variable would be lost by `env -i`, `sudo` and services. Only glibc
reads that file.
"""

from __future__ import annotations

from pathlib import Path

from tvsnap.images.architecture import this_architecture
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import read_text, resolve_inside, write_file

LIBRARY = "/run/tvsnap/fixed.so"
"""The path at which backends install it (native/preload)."""
PRELOAD = "/etc/ld.so.preload"
_LOADERS = {"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}


def preload(root: Path) -> None:
    """Makes the programs of an image's tree (with shifted owners) load the library, which backends provide.

    Raises BuildStepFailed if the programs would not load it.
    """
    loader = _LOADERS.get(this_architecture(), "")
    if not loader or not resolve_inside(root, loader, follow=True).is_file():
        raise BuildStepFailed(
            f"failed: clock and random_seed need glibc, whose loader {loader or 'for this machine'} the image lacks; "
            "leave them out, or take a base as debian:bookworm-slim"
        )
    write_file(root, PRELOAD, "\n".join([LIBRARY, *_others(root)]).encode() + b"\n")


def without_preload(root: Path) -> None:
    """Reverts `preload` in a tree (with shifted owners) from another image, because builds do not have the library."""
    others = _others(root)
    if LIBRARY not in read_text(root, PRELOAD).split():
        return
    if others:
        write_file(root, PRELOAD, "\n".join(others).encode() + b"\n")
    else:
        resolve_inside(root, PRELOAD).unlink()


def _others(root: Path) -> list[str]:
    """Returns the other libraries that every program has to load."""
    return [name for name in read_text(root, PRELOAD).split() if name != LIBRARY]
