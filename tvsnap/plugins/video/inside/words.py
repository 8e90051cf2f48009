"""Reads text in frames (Tesseract) and words that are spoken (PocketSphinx)."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .media import SEGMENT_S, checked

_SURE = 60
"""Percent of certainty from which a word is taken."""
_TOGETHER = 40
"""Frames that one process of Tesseract reads."""
_SIDE_BY_SIDE = 2
_BLOCK_OF_TEXT = "6"
"""Tesseract's mode for a frame. In modes for sparse text it misses words in boxes, and reads shapes as letters."""
_WORD = re.compile(r"^(\S+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+\d+\.\d+$")


def shown(frames: Sequence[Path], work: Path, memory: int) -> list[str]:
    """Returns the text in each of some frames, line after line; "" if there is none."""
    parts = [frames[start : start + _TOGETHER] for start in range(0, len(frames), _TOGETHER)]
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        listings = [work / f"frames-{number}.txt" for number in range(len(parts))]
        listings_of_texts = pool.map(lambda part, listing: _read(part, listing, memory), parts, listings)
        return [text for part in listings_of_texts for text in part]


def spoken(wav: Path, memory: int) -> Mapping[int, str]:
    """Returns the words that are said, by the segment in which each begins."""
    output = checked(["pocketsphinx_continuous", "-infile", str(wav), "-time", "yes", "-logfn", "/dev/null"], memory)
    words = defaultdict(list)
    for line in output.decode("utf-8", "replace").splitlines():
        match = _WORD.match(line)
        if match and not match[1].startswith(("<", "[", "++")):
            words[int(float(match[2]) // SEGMENT_S)].append(re.sub(r"\(\d+\)$", "", match[1]))
    return {segment: " ".join(texts) for segment, texts in words.items()}


def _read(frames: Sequence[Path], listing: Path, memory: int) -> list[str]:
    listing.write_text("".join(f"{frame}\n" for frame in frames))
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    output = checked(
        ["tesseract", str(listing), "-", "--psm", _BLOCK_OF_TEXT, "-l", "eng", "tsv"], memory, env=environment
    )
    listing.unlink()
    lines: dict[int, dict[tuple[str, str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(io.StringIO(output.decode("utf-8", "replace")), delimiter="\t", quoting=csv.QUOTE_NONE):
        text = (row.get("text") or "").strip()
        if row["level"] == "5" and float(row["conf"]) >= _SURE and re.search(r"\w", text):
            place = (row["block_num"], row["par_num"], row["line_num"])
            lines[int(row["page_num"])][place].append(text)
    return [" / ".join(" ".join(line) for line in lines[page].values()) for page in range(1, len(frames) + 1)]
