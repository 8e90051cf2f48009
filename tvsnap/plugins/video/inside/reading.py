"""The steps that complete a memory, and read it. Each takes and returns what JSON can express."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import memory


def finish(request: Mapping[str, Any]) -> dict[str, Any]:
    """Adds what models said to the memory that `preprocess` began, and puts it into use."""
    with memory.opened(memory.UNFINISHED, write=True) as database:
        captions = request.get("captions") or []
        database.executemany(
            "UPDATE Segments SET caption = ? WHERE segment_id = ?",
            [(one, number) for number, one in enumerate(captions)],
        )
        for space, vectors in request.get("vectors", {}).items():
            packed = (base64.b64decode(vector) for vector in vectors)
            memory.written(database, "Vectors", ((space, number, vector) for number, vector in enumerate(packed)))
        database.execute("UPDATE Video SET value = 'true' WHERE name = 'preprocessed'")
        facts = memory.described(database)
        things = len(memory.objects(database))
    memory.UNFINISHED.replace(memory.FILE)
    for file in request["used"]:
        Path(file).unlink(missing_ok=True)
    return {"segments": facts["segments"], "objects": things}


def captions(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns captions of some segments."""
    with memory.opened() as database:
        total = memory.count(database)
        first, last = max(request["first"], 0), min(request["last"], total - 1)
        return {
            "total": total,
            "frames": memory.described(database)["frames"],
            "segments": memory.segments(database, first, last),
        }


def search(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the segments that are most similar to some vectors."""
    queries = {space: base64.b64decode(packed) for space, packed in request["vectors"].items()}
    with memory.opened() as database:
        total = memory.count(database)
        try:
            numbers = memory.nearest(database, queries, request["most"])
        except memory.OtherLength as other:
            return {"total": total, "segments": [], "other_length": str(other)}
        return {
            "total": total,
            "segments": [memory.segments(database, one, one)[0] for one in numbers],
            "other_length": "",
        }


def things(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the objects of a video."""
    with memory.opened() as database:
        return {"total": memory.count(database), "objects": memory.objects(database)}


def query(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rows of a SELECT."""
    with memory.opened() as database:
        memory.count(database)
        return memory.query(database, request["program"])
