"""Where tvsnap keeps its data."""

from __future__ import annotations

import os
from pathlib import Path

from tvsnap.arguments import check_text
from tvsnap.errors import MachineLacks, UsageError

SYSTEM_HOME = Path("/var/lib/tvsnap")
LONGEST = 400
"""Bytes of the path; SQLite takes 512 for a file's, and mounts take 4096 for several."""


def resolve_home(home: Path | str | None = None) -> Path:
    """Finds the data directory, and makes it (for its owner only) if it is not there.

    Args:
        home: the directory to use; without one `$TVSNAP_HOME`, else /var/lib/tvsnap for root, else `tvsnap` in the
            user's XDG data directory.

    Returns:
        Its absolute path.

    Raises:
        UsageError: it is no path; or the path is there and is no directory, or it is too long.
        MachineLacks: no rights to make it or to write there.
    """
    if home is not None and (not isinstance(home, (str, Path)) or home == ""):
        raise UsageError(f"home must be a path, not {home!r}")
    check_text(str(home), "home")
    path = Path(home or os.environ.get("TVSNAP_HOME") or _default_home()).expanduser().absolute()
    way_out = "choose another with --home or $TVSNAP_HOME"
    if len(os.fsencode(path)) > LONGEST:
        raise UsageError(f"the data directory {str(path)[:60]}... is too long: at most {LONGEST} bytes; {way_out}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"the data directory {path} is no directory; {way_out}") from None
    except OSError as error:
        raise MachineLacks(f"cannot make the data directory {path}: {error.strerror}; {way_out}") from None
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise MachineLacks(f"the data directory {path} is on a read-only file system; remount it, or {way_out}")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise MachineLacks(f"no rights to read and write the data directory {path}; {way_out}")
    return path


def _default_home() -> Path:
    if os.geteuid() == 0:
        return SYSTEM_HOME
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "tvsnap"
