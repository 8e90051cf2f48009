"""The steps that load a video and find out what is in it. Each takes and returns what JSON can express."""

from __future__ import annotations

import http.client
import json
import os
import re
import sqlite3
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy

from . import media, memory, objects, words
from .media import Failed, Video

_BLOCK = 1 << 20
_DIFFERS = 12.0
"""Levels of 255 by which a part of a frame must differ from another frame for its text to be read anew."""
_WITH_PASSWORD = re.compile(r"[^/]*/*[^/?#]*@")
_PARTS = 8
"""Rows and columns of parts in which frames are compared."""


def load(request: Mapping[str, Any]) -> dict[str, Any]:
    """Checks a video, and begins a memory of it; what was known of another video is forgotten."""
    name = request["video"]
    path = _downloaded(name) if name.lower().startswith(("http:", "https:")) else os.path.abspath(name)
    video = media.probe(path, request["memory"])
    if not memory.FOLDER.is_dir():
        memory.cleared(memory.FOLDER)
        memory.FOLDER.mkdir(parents=True)
    for each in memory.FOLDER.iterdir():
        memory.cleared(each)
    memory.created(memory.UNFINISHED, video)
    memory.UNFINISHED.replace(memory.FILE)
    return {**vars(video), "segments": video.segments}


def preprocess(request: Mapping[str, Any]) -> dict[str, Any]:
    """Decodes the video and finds out what can be found without a model; `finish` makes a memory of it."""
    with memory.opened() as database:
        video = memory.loaded(database)
    current = media.probe(video.path, request["memory"])
    if current != video:
        raise Failed(f"{video.path} is another video than the one that was loaded: load it again")
    work = memory.FOLDER / "work"
    for folder in (memory.FRAMES, work):  # a call that was cut may have left them
        memory.cleared(folder)
        folder.mkdir()
    try:
        tracker, changed, cuts = _watched(video, work, request["memory"])
        frames = sorted(memory.FRAMES.iterdir())
        texts = words.shown([frames[min(number, len(frames) - 1)] for number in changed], work, request["memory"])
        wav = work / "sound.wav"
        heard = words.spoken(wav, request["memory"]) if media.sound(video, wav, request["memory"]) else {}
    finally:
        memory.cleared(work)
    shown = dict(zip(changed, texts, strict=True))
    # The file may say that it is longer than its pictures are: no segment is without a frame.
    decoded = replace(video, seconds=min(video.seconds, len(frames) / media.RATE))
    memory.created(memory.UNFINISHED, decoded)
    with memory.opened(memory.UNFINISHED, write=True) as database:
        _write_memory(database, decoded, tracker, shown, heard, cuts)
        # The file's own length stays: it is compared when the video is preprocessed again.
        facts = {"frames": len(frames), "seconds": video.seconds}
        memory.written(database, "Video", [(name, json.dumps(value)) for name, value in facts.items()])
        segments = memory.segments(database, 0, decoded.segments - 1)
    return {"segments": segments, "frames": len(frames)}


def with_article(name: str) -> str:
    """Returns the name of a thing with its indefinite article."""
    return f"{'an' if name[:1].lower() in ('a', 'e', 'i', 'o', 'u') else 'a'} {name}"


def _watched(video: Video, work: Path, limit: int) -> tuple[objects.Tracker, list[int], list[float]]:
    """Decodes a video; returns its objects, the frames whose text has to be read, and the seconds of cuts."""
    tracker, changed = objects.Tracker(), []
    last: numpy.ndarray | None = None
    for number, frame in enumerate(media.decode(video, memory.FRAMES, work / "cuts", limit)):
        segment, place = divmod(number, media.FRAMES_PER_SEGMENT)
        tracker.add(segment, objects.things(frame))
        if place == 1:  # the one from half a second to one second: past a fade, before the next cut
            if last is None or _differs(frame, last):
                changed.append(number)
            last = frame
    return tracker, changed or [0], media.cut_times(work / "cuts")


def _write_memory(
    database: sqlite3.Connection,
    video: Video,
    tracker: objects.Tracker,
    shown: Mapping[int, str],
    heard: Mapping[int, str],
    cuts: list[float],
) -> None:
    """Writes what was found into a memory, and captions that say it."""
    ids = enumerate(tracker.objects)
    motions: dict[int, list[str]] = {}
    for number, one in ids:
        memory.written(database, "Objects", [(number, one.category)])
        for segment, path in one.positions.items():
            motion = objects.motion(path)
            memory.written(database, "Objects_Segments", [(number, segment, motion)])
            motions.setdefault(segment, []).append(f"{with_article(one.category)} {motion}")
    text = ""
    for segment in range(video.segments):
        text = shown.get(segment * media.FRAMES_PER_SEGMENT + 1, shown.get(0, "") if segment == 0 else text)
        speech = heard.get(segment, "")
        facts = "; ".join(sorted(motions.get(segment, [])))
        scene = sum(cut <= (segment + 0.5) * media.SEGMENT_S for cut in cuts)
        parts = (facts, f'text "{text}"' if text else "", f'somebody says "{speech}"' if speech else "")
        caption = "; ".join(filter(None, parts)) or "nothing that is known here"
        memory.written(database, "Segments", [(segment, caption, text, speech, scene)])


def _differs(frame: numpy.ndarray, other: numpy.ndarray) -> bool:
    """Returns whether two frames differ somewhere, so that one may show another text."""
    away = numpy.abs(frame.astype(numpy.int16) - other).mean(-1)
    parts = (part for rows in numpy.array_split(away, _PARTS) for part in numpy.array_split(rows, _PARTS, axis=1))
    return any(part.mean() > _DIFFERS for part in parts)


def _downloaded(address: str) -> str:
    """Returns the path of a file with what is at an address; a file of its name is replaced once all has come."""
    if _WITH_PASSWORD.match(address):
        raise Failed(
            "an address with a user or a password is not fetched, because calls are kept: fetch it with a program"
        )
    try:
        name = os.path.basename(unquote(urlsplit(address).path)).replace("\0", "") or "video"
    except ValueError as error:
        raise Failed(f"{address} cannot be fetched: {error}") from None
    with tempfile.TemporaryDirectory(dir=".") as folder:
        part = Path(folder, "part")
        try:
            with urllib.request.urlopen(address, timeout=60) as answer, part.open("wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    if file.tell() > media.LARGEST_DOWNLOAD:
                        raise Failed(f"{address} is larger than {media.LARGEST_DOWNLOAD >> 30} GiB")
            part.replace(name)
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Failed(f"{address} cannot be fetched: {reason}") from None
    return os.path.abspath(name)
