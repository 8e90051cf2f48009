"""The tuning of a data directory: a JSON file that people can read, write and delete."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from tvsnap.model.errors import UsageError
from tvsnap.model.tuning import DEFAULT_TUNING, Tuning

TUNING_FILE = "tuning.json"


def read_tuning(home: Path) -> Tuning:
    """Returns the tuning that was written for a data directory; the default where none was.

    Raises:
        UsageError: the file cannot be read, or holds no tuning.
    """
    file = home / TUNING_FILE
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise UsageError("it is no ordinary file")
        return Tuning.of(json.loads(file.read_bytes(), object_pairs_hook=_once))
    except FileNotFoundError:
        return DEFAULT_TUNING
    except (OSError, ValueError, RecursionError, UsageError) as error:
        raise UsageError(f"{file} holds no tuning: {error}; mend it, or delete it (tvsnap tune --reset)") from None


def write_tuning(home: Path, tuning: Tuning) -> Path:
    """Replaces the tuning of a data directory, as a whole: caches that are opened from now on have it.

    Returns:
        The file.
    """
    file = home / TUNING_FILE
    handle, new = tempfile.mkstemp(prefix=f".{TUNING_FILE}.", dir=home)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(json.dumps(tuning.as_dict(), indent=2) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    return file


def remove_tuning(home: Path) -> bool:
    """Deletes the tuning of a data directory; returns whether there was one.

    Raises:
        UsageError: it is a folder, or must not be deleted.
    """
    try:
        (home / TUNING_FILE).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(f"{home / TUNING_FILE} cannot be deleted ({error.strerror}); move it away") from None
    return True


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a parameter is there twice")
    return found
