"""Reads video files with FFmpeg, within limits: what a file says of itself, its frames, its sound and its cuts."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

SEGMENT_S = 2.0
"""Seconds of a segment, as in VideoAgent (arXiv 2403.11481)."""
FRAMES_PER_SEGMENT = 4
"""Frames that are kept of a segment: those of which VideoAgent makes a caption."""
RATE = FRAMES_PER_SEGMENT / SEGMENT_S
MOST_SECONDS = 4 * 3600
MOST_PIXELS = 8192 * 4320
"""Pixels of a frame, at most: a decoder takes several times as many bytes."""
LARGEST_DOWNLOAD = 4 << 30
"""Bytes."""
WIDTH = 768
"""Pixels of a kept frame's width, at most: enough for words that people can read."""
SMALL_WIDTH = 160
"""Pixels of the width in which objects are looked for."""
_NARROWEST = 0.1
"""A frame's width by its height, or the other way round, at least."""
_CUT = 12
"""The least difference, of 100, between two frames at a cut; 10 is FFmpeg's own value, which soft changes reach too."""
_LONGEST_REASON = 300
_FORMATS = (
    "3gp,apng,asf,av1,avi,dv,flv,gif,gxf,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mp4,mpeg,mpegts,mpegvideo,mxf,nut,obu,"
    "ogg,rm,swf,webm,wtv,yuv4mpegpipe"
)
"""FFmpeg's names of the formats that are taken. Others are lists of files, texts that it would paint, or sounds."""
_REFUSED = re.compile(r"\[([\w,-]+) @ \w+\] Format not on whitelist")
_WANTS = ("Cannot allocate memory", "Resource temporarily unavailable", "No space left on device")
"""FFmpeg's messages if a limit of the sandbox stops it; complaints about what follows from that come after them."""


class Failed(Exception):
    """The file cannot be used; the message says why, and is the tool's answer."""


@dataclass(frozen=True)
class Video:
    """The facts about a video.

    Attributes:
        path: the file, absolute.
        seconds: its length.
        width, height: the size of its frames, in pixels.
        sound: whether there is any.
    """

    path: str
    seconds: float
    width: int
    height: int
    sound: bool

    @property
    def segments(self) -> int:
        """The number of its segments; a rest of less than a tenth of a second is none."""
        return max(1, math.ceil((self.seconds - 0.1) / SEGMENT_S))

    @property
    def small_height(self) -> int:
        """Pixels of the height in which objects are looked for."""
        return max(2, round(SMALL_WIDTH * self.height / self.width / 2) * 2)


def run(arguments: list[str], memory: int, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs a program that may take `memory` bytes of addresses at most; returns what it printed."""
    return subprocess.run(
        arguments, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=_within(memory), **options
    )


def checked(arguments: list[str], memory: int, **options: Any) -> bytes:
    """Returns what a program printed, like `run`; raises Failed if it fails."""
    process = run(arguments, memory, **options)
    if process.returncode:
        raise Failed(f"{arguments[0]} ended with status {process.returncode}: {_reason(process.stderr, '')}")
    return process.stdout


def probe(path: str, memory: int) -> Video:
    """Returns what a file says of itself; raises Failed unless it is a video within the limits."""
    _check_file(path)
    entries = (
        "format=format_name,duration,start_time:stream=codec_type,width,height,duration:stream_disposition=attached_pic"
        ":stream_side_data=rotation"
    )
    process = run(_tool("ffprobe", "-show_entries", entries, "-of", "json", f"file:{path}"), memory)
    refused = _REFUSED.search(process.stderr.decode("utf-8", "replace"))
    if refused:
        name = refused[1]
        if name.endswith("_pipe") or "image2" in name.split(","):
            raise Failed(f"{path} is a single picture, no video")
        raise Failed(
            f"{path} is not a video that is taken: FFmpeg finds the format {name}, not {_FORMATS.replace(',', ', ')}"
        )
    try:
        report = json.loads(process.stdout)
        streams, container = report["streams"], report["format"]
    except (ValueError, KeyError):
        raise Failed(f"{path} is not a video that FFmpeg can read: {_reason(process.stderr, path)}") from None
    video_streams = [one for one in streams if one.get("codec_type") == "video" and one.get("width")]
    pictures = [
        one for one in video_streams if not one.get("disposition", {}).get("attached_pic")
    ]  # no cover of a song
    if not pictures:
        raise Failed(f"{path} has no pictures: it is no video")
    names = str(container.get("format_name", ""))
    first = pictures[0]
    width, height = int(first["width"]), int(first["height"])
    turns = [_number(one.get("rotation")) for one in first.get("side_data_list", [])]
    if any(round(degrees / 90) % 2 for degrees in turns):  # frames are decoded as they are to be shown
        width, height = height, width
    if width * height > MOST_PIXELS:
        raise Failed(f"{path} has frames of {width} x {height} pixels; at most {MOST_PIXELS} are decoded")
    if not _NARROWEST <= width / height <= 1 / _NARROWEST:
        raise Failed(f"{path} has frames of {width} x {height} pixels, which are too narrow to be looked at")
    seconds = _number(first.get("duration")) or _number(container.get("duration")) or _length(path, memory)
    if "matroska" in names and not _number(first.get("duration")):  # it tells when it ends, wherever its time begins
        seconds -= _number(container.get("start_time"))
    if not 0 < seconds <= MOST_SECONDS:
        reason = "holds no frames" if seconds <= 0 else f"is {seconds:.0f} s long; at most {MOST_SECONDS} s are taken"
        raise Failed(f"{path} {reason}")
    sound = any(one.get("codec_type") == "audio" for one in streams)
    return Video(path, round(seconds, 3), width, height, sound)


def decode(video: Video, folder: Path, cuts: Path, memory: int) -> Iterator[numpy.ndarray]:
    """Decodes a video once: keeps its frames as files, and yields them small.

    Args:
        video: the video.
        folder: for the frames: 000000.jpg and so on, four of a segment.
        cuts: the file that FFmpeg tells cuts in.
        memory: bytes of addresses that FFmpeg may take.

    Yields:
        Frames, of the shape (height, width, 3), in RGB.

    Raises:
        Failed: nothing could be decoded.
    """
    import numpy

    most = video.segments * FRAMES_PER_SEGMENT
    height = video.small_height
    graph = (
        f"[0:v:0]scdet=threshold={_CUT},metadata=mode=print:key=lavfi.scd.time:file={cuts},fps={RATE:g}:round=near:eof_action=pass,"
        f"split=2[kept][small];[kept]scale='min({WIDTH},iw)':-2,format=yuvj420p[frames];"
        f"[small]scale={SMALL_WIDTH}:{height}:flags=area,format=rgb24[raw]"
    )
    arguments = [
        *_tool("ffmpeg", "-nostdin", "-threads", "2", "-t", f"{MOST_SECONDS}", "-i", f"file:{video.path}"),
        *("-filter_complex", graph),
        *("-map", "[frames]", "-frames:v", f"{most}", "-q:v", "3", "-start_number", "0", f"{folder}/%06d.jpg"),
        *("-map", "[raw]", "-frames:v", f"{most}", "-f", "rawvideo", "pipe:1"),
    ]
    errors = folder / "errors"
    with (
        open(errors, "wb") as log,
        subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, preexec_fn=_within(memory)
        ) as process,
    ):
        assert process.stdout is not None
        size, count = SMALL_WIDTH * height * 3, 0
        while len(frame := process.stdout.read(size)) == size:
            count += 1
            yield numpy.frombuffer(frame, numpy.uint8).reshape(height, SMALL_WIDTH, 3)
    messages = errors.read_bytes()
    errors.unlink()
    if count == 0:
        raise Failed(f"no frame of {video.path} can be decoded: {_reason(messages, video.path)}")


def cut_times(cuts: Path) -> list[float]:
    """Returns when cuts are, in seconds."""
    if not cuts.exists():
        return []
    marks = (line.partition("=") for line in cuts.read_text().splitlines() if line.startswith("lavfi.scd.time="))
    return [float(value) for _, _, value in marks]


def sound(video: Video, target: Path, memory: int) -> bool:
    """Writes a video's sound as a WAV file of one channel and 16 kHz; returns whether there is any."""
    if not video.sound:
        return False
    source = _tool("ffmpeg", "-nostdin", "-threads", "2", "-t", f"{MOST_SECONDS}", "-i", f"file:{video.path}")
    process = run([*source, "-map", "0:a:0", "-ac", "1", "-ar", "16000", "-y", str(target)], memory)
    return process.returncode == 0 and target.exists() and target.stat().st_size > 1000


def _check_file(path: str) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise Failed(f"{path} is no file")
    if status.st_size == 0:
        raise Failed(f"{path} is empty")


def _tool(name: str, *arguments: str) -> list[str]:
    # A file may name others only as files: no address, no device.
    limits = ("-protocol_whitelist", "file,pipe", "-format_whitelist", _FORMATS)
    return [name, "-hide_banner", "-v", "error", *limits, *arguments]


def _length(path: str, memory: int) -> float:
    """Returns the seconds of a video that does not say how long it is, by its packets."""
    shown = ("-select_streams", "v:0", "-show_entries", "packet=pts_time,duration_time", "-of", "csv=p=0")
    process = run(_tool("ffprobe", *shown, f"file:{path}"), memory)
    ends = (line.split(",") for line in process.stdout.decode("ascii", "replace").splitlines())
    return max((sum(_number(field) for field in fields[:2]) for fields in ends), default=0.0)


def _number(text: Any) -> float:
    try:
        value = float(Fraction(text)) if isinstance(text, str) and "/" in text else float(text)
    except (TypeError, ValueError, ZeroDivisionError):
        return 0.0
    return value if math.isfinite(value) else 0.0


def _reason(errors: bytes, path: str) -> str:
    """Returns what FFmpeg said, in one line, without addresses of its memory, which differ each time."""
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if any(words in line for words in _WANTS)]
    reason = [*lines, *telling[:1]][-1].replace(f"file:{path}: ", "") if lines else "it says nothing of why"
    if reason.startswith("[") and "]" in reason:
        reason = reason.partition("]")[2].strip()
    return reason[:_LONGEST_REASON]


def _within(memory: int) -> Any:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return limit
