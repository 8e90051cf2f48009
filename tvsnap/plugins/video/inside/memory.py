"""The memory of a video: a SQLite file with its segments, what is known of each, and the objects in it.

The tables of objects are those of VideoAgent, so that a program written for one can be used with the other.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from .media import Failed, Video

FOLDER = Path("/var/lib/tvsnap-video")
FRAMES = FOLDER / "frames"
FILE = FOLDER / "memory.sqlite"
UNFINISHED = FOLDER / "memory.unfinished.sqlite"
MOST_ROWS = 200
_LONGEST_RESULT = 100_000
_LONGEST_TEXT = 100_000
"""Characters, as many as a model's answer may have."""
DAMAGED = "the memory of the video is damaged: load and preprocess the video again"
_STRANGE = (
    *(sqlite3.Error, sqlite3.Warning, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError),
    ValueError,
)
"""Errors that are raised for a memory with rows that are not as they were written."""
_VERSION = 1
_SCHEMA = """
CREATE TABLE Video (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE Segments (
    segment_id INTEGER PRIMARY KEY, caption TEXT NOT NULL DEFAULT '', shown TEXT NOT NULL DEFAULT '',
    spoken TEXT NOT NULL DEFAULT '', scene INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE Objects (object_id INTEGER PRIMARY KEY, category VARCHAR(255));
CREATE TABLE Objects_Segments (
    object_id INTEGER REFERENCES Objects, segment_id INTEGER REFERENCES Segments, motion TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (object_id, segment_id)
) WITHOUT ROWID;
CREATE TABLE Vectors (space TEXT, segment_id INTEGER, vector BLOB, PRIMARY KEY (space, segment_id)) WITHOUT ROWID;
"""


class OtherLength(Exception):
    """A vector to search with is not as long as those in the memory: its model gives other ones than it did."""


@contextmanager
def opened(path: Path = FILE, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A block in which a memory is open, and nothing but it is read or written; raises Failed if there is none, if
    something else has damaged it, or if there is no space left.
    """
    if not path.exists():
        raise Failed("no video is loaded: call load_video_into_sandbox first")
    if not path.is_file():  # SQLite would wait for who writes into a pipe
        raise Failed(DAMAGED)
    mode = "rw" if write else "ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode={mode}", uri=True)) as memory, memory:
            yield memory
    except _STRANGE as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
            raise Failed("there is no space left for the memory of the video") from None
        raise Failed(DAMAGED) from None


def created(path: Path, video: Video) -> None:
    """Makes an empty memory of a video."""
    cleared(path)
    with closing(sqlite3.connect(path)) as memory, memory:
        # One file only, always whole: it is written beside the one in use, and takes its place.
        memory.executescript(f"PRAGMA journal_mode = OFF; PRAGMA user_version = {_VERSION}; {_SCHEMA}")
        facts = {**vars(video), "segments": video.segments, "preprocessed": False}
        memory.executemany(
            "INSERT INTO Video VALUES (?, ?)", [(key, json.dumps(value)) for key, value in facts.items()]
        )


def cleared(path: Path) -> None:
    """Removes what there is, a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def described(memory: sqlite3.Connection) -> dict[str, Any]:
    """Returns what is known of the video itself."""
    return {name: json.loads(value) for name, value in memory.execute("SELECT name, value FROM Video")}


def loaded(memory: sqlite3.Connection) -> Video:
    """Returns the video of a memory."""
    values = described(memory)
    facts = [values[name] for name in ("path", "seconds", "width", "height", "sound")]
    if [type(fact) for fact in facts] != [str, float, int, int, bool]:
        raise ValueError(facts)
    return Video(*facts)


def count(memory: sqlite3.Connection) -> int:
    """Returns the number of segments; raises Failed unless the video was preprocessed."""
    values = described(memory)
    if values["preprocessed"] is not True:
        raise Failed("the video is not preprocessed: call preprocess first")
    if type(values["segments"]) is not int:
        raise ValueError(values)
    return values["segments"]


def segments(memory: sqlite3.Connection, first: int, last: int) -> list[dict[str, Any]]:
    """Returns all that is known of some segments."""
    names = ("segment_id", "caption", "shown", "spoken")
    rows = memory.execute(
        f"SELECT {', '.join(names)} FROM Segments WHERE segment_id BETWEEN ? AND ? ORDER BY segment_id", (first, last)
    )
    entries = [dict(zip(names, row, strict=True)) for row in rows]
    if any(len(one[name]) > _LONGEST_TEXT for one in entries for name in names[1:]):
        raise ValueError("a text that no tool has written")
    return entries


def nearest(memory: sqlite3.Connection, queries: Mapping[str, bytes], most: int) -> list[int]:
    """Returns the segments that are most similar to vectors, the most similar first.

    Args:
        memory: the memory.
        queries: a vector for each space of embeddings, packed as 32-bit numbers; similarities are added up.
        most: the number of segments.
    """
    import numpy  # 50 ms, for this step only

    scores: dict[int, float] = {}
    for space, query in queries.items():
        wanted = numpy.frombuffer(query, "<f4")
        for segment, packed in memory.execute("SELECT segment_id, vector FROM Vectors WHERE space = ?", (space,)):
            vector = numpy.frombuffer(packed, "<f4")
            if vector.shape != wanted.shape:
                raise OtherLength(space)
            scale = float(numpy.linalg.norm(wanted) * numpy.linalg.norm(vector))
            scores[segment] = scores.get(segment, 0.0) + (float(wanted @ vector) / scale if scale else 0.0)
    return sorted(scores, key=lambda segment: (-round(scores[segment], 6), segment))[:most]


def objects(memory: sqlite3.Connection) -> list[dict[str, Any]]:
    """Returns the objects, each with its category and the segments that it is in."""
    rows = memory.execute(
        "SELECT object_id, category, segment_id FROM Objects JOIN Objects_Segments USING (object_id) "
        "ORDER BY object_id, segment_id"
    )
    entries: dict[int, dict[str, Any]] = {}
    for number, category, segment in rows:
        if len(category) > _LONGEST_TEXT:
            raise ValueError("a category that no tool has written")
        one = entries.setdefault(number, {"object_id": number, "category": category, "segments": []})
        one["segments"].append(segment)
    return list(entries.values())


def query(memory: sqlite3.Connection, program: str) -> dict[str, Any]:
    """Returns the rows of a SELECT that somebody else wrote; an error of it is told, as an answer."""
    memory.set_authorizer(_only_reads)
    steps = 0

    def too_long() -> int:
        nonlocal steps
        steps += 1
        return int(steps > 2000)

    memory.set_progress_handler(too_long, 10_000)
    try:
        cursor = memory.execute(program)
        rows = cursor.fetchmany(MOST_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        return {"error": str(error)}
    values = [[field.hex() if isinstance(field, bytes) else field for field in row] for row in rows[:MOST_ROWS]]
    if len(json.dumps(values)) > _LONGEST_RESULT:
        return {"error": f"the rows have more than {_LONGEST_RESULT} characters"}
    return {"rows": values, "more": len(rows) > MOST_ROWS}


def written(memory: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Writes whole rows."""
    for row in rows:
        memory.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _only_reads(action: int, *_: Any) -> int:
    reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reads else sqlite3.SQLITE_DENY
