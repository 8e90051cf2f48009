"""Has every dynamically linked program of an image load our library, which fixes its clock and its randomness.

/etc/ld.so.preload, as an environment variable would be lost by `env -i`, `sudo` and services. glibc alone reads it.
"""

from __future__ import annotations

from pathlib import Path

from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.oci import this_architecture
from tvsnap.images.rootfs import read_text, resolve_inside, write_file

LIBRARY = "/run/tvsnap/fixed.so"
"""Where backends put it (native/preload)."""
PRELOAD = "/etc/ld.so.preload"
_LOADERS = {"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}


def preload(root: Path) -> None:
    """Sets an image up for its sandboxes: the library itself is in them, not in the image.

    Args:
        root: the image's tree, its owners shifted.

    Raises:
        BuildStepFailed: its programs would not load the library.
    """
    loader = _LOADERS.get(this_architecture(), "")
    if not loader or not resolve_inside(root, loader, follow=True).is_file():
        raise BuildStepFailed(
            f"failed: clock and random_seed need glibc, whose loader {loader or 'for this machine'} the image lacks; "
            "leave them out, or take a base as debian:bookworm-slim"
        )
    write_file(root, PRELOAD, "\n".join([LIBRARY, *_others(root)]).encode() + b"\n")


def without_preload(root: Path) -> None:
    """Takes that back in a tree that came from another image: nothing in a build has the library.

    Args:
        root: the tree, its owners shifted.
    """
    others = _others(root)
    if LIBRARY not in read_text(root, PRELOAD).split():
        return
    if others:
        write_file(root, PRELOAD, "\n".join(others).encode() + b"\n")
    else:
        resolve_inside(root, PRELOAD).unlink()


def _others(root: Path) -> list[str]:
    """Returns what else is to be loaded into every program."""
    return [name for name in read_text(root, PRELOAD).split() if name != LIBRARY]
