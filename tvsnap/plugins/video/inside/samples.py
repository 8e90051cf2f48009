"""Makes videos of which everything is known: text, moving shapes, cuts and spoken sentences."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from .media import checked

_FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
_MEMORY = 2 << 30
_RATE = 25
_FINE = 4
"""Times as large as it is wanted is a shape drawn first, so that its edges are smooth."""


def sample(request: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a video of scenes that follow each other.

    Args:
        request: `path` of the video; `width` and `height` in pixels; `scenes`. Each scene has `seconds`, `background`
            (a colour as FFmpeg names it), and, if wanted, `text`, `speech`, and `shapes`. Each of these has `shape`
            (circle, square or triangle), `colour` (red, green and blue, 0 to 255), `size` in pixels, and `start` and
            `end`, where its upper left corner is, in pixels.
    """
    width, height = request["width"], request["height"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        parts = [_scene(scene, number, width, height, work) for number, scene in enumerate(request["scenes"])]
        listing = work / "parts.txt"
        listing.write_text("".join(f"file '{part}'\n" for part in parts))
        joined = ["ffmpeg", "-v", "error", "-y", "-f", "concat", "-safe", "0", "-i", str(listing), "-c", "copy"]
        target = Path(request["path"])
        target.parent.mkdir(parents=True, exist_ok=True)
        checked([*joined, "-movflags", "+faststart", str(target)], _MEMORY)
    return {"path": str(target), "bytes": target.stat().st_size}


def _scene(scene: Mapping[str, Any], number: int, width: int, height: int, work: Path) -> Path:
    seconds = float(scene["seconds"])
    inputs = ["-f", "lavfi", "-i", f"color=c={scene['background']}:s={width}x{height}:r={_RATE}:d={seconds}"]
    graph: str = ""
    last = "0:v"
    for place, shape in enumerate(scene.get("shapes", ()), start=1):
        picture = work / f"shape-{number}-{place}.png"
        _drawn(shape).save(picture)
        inputs += ["-loop", "1", "-framerate", str(_RATE), "-t", f"{seconds}", "-i", str(picture)]
        (x0, y0), (x1, y1) = shape["start"], shape["end"]
        moved = f"x='{x0}+({x1 - x0})*t/{seconds}':y='{y0}+({y1 - y0})*t/{seconds}'"
        graph += f"[{last}][{place}:v]overlay={moved}:shortest=1[v{place}];"
        last = f"v{place}"
    if scene.get("text"):
        text = work / f"text-{number}.txt"
        text.write_text(scene["text"])
        where = f"x=(w-tw)/2:y=h*0.08:fontsize={height // 8}:fontcolor=black:box=1:boxcolor=white:boxborderw=12"
        graph += f"[{last}]drawtext=fontfile={_FONT}:textfile={text}:expansion=none:{where}[shown];"
        last = "shown"
    sound = len(scene.get("shapes", ())) + 1
    if scene.get("speech"):
        speech = work / f"speech-{number}.txt"
        speech.write_text(scene["speech"])
        inputs += ["-f", "lavfi", "-i", f"flite=textfile={speech}:voice=slt"]
    else:
        inputs += ["-f", "lavfi", "-i", "anullsrc=r=16000:cl=mono"]
    graph += f"[{last}]format=yuv420p[video];[{sound}:a]adelay=300,aresample=44100,apad,atrim=duration={seconds}[audio]"
    target = work / f"part-{number}.mp4"
    coded = [
        "-c:v",
        "libx264",
        "-preset",
        "veryfast",
        "-crf",
        "23",
        "-threads",
        "1",
        "-c:a",
        "aac",
        "-ac",
        "1",
        "-ar",
        "44100",
    ]
    maps = ["-map", "[video]", "-map", "[audio]", "-t", f"{seconds}"]
    checked(["ffmpeg", "-v", "error", "-y", *inputs, "-filter_complex", graph, *maps, *coded, str(target)], _MEMORY)
    return target


def _drawn(shape: Mapping[str, Any]) -> Image.Image:
    size = int(shape["size"])
    large = Image.new("RGBA", (size * _FINE, size * _FINE), (0, 0, 0, 0))
    draw, end, colour = ImageDraw.Draw(large), size * _FINE - 1, (*shape["colour"], 255)
    if shape["shape"] == "circle":
        draw.ellipse((0, 0, end, end), fill=colour)
    elif shape["shape"] == "square":
        draw.rectangle((0, 0, end, end), fill=colour)
    else:
        draw.polygon([(end / 2, 0), (end, end), (0, end)], fill=colour)
    return large.resize((size, size), Image.LANCZOS)
