"""Finds things of one colour before a background, and follows them through a video.

This is no recogniser of everyday objects: it knows shapes by their colour and their outline. It needs no weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
from scipy import ndimage

_COLOURS = (("red", 0), ("orange", 30), ("yellow", 58), ("green", 120), ("cyan", 180), ("blue", 235), ("purple", 290))
"""Names of hues, in degrees."""
_SATURATED = 0.45
_BRIGHT = 0.25
_SMALLEST, _LARGEST = 0.0015, 0.35
"""Parts of a frame that a thing may take."""
_STILL = 0.04
"""Parts of a frame's width within which a thing stands still during a segment."""


@dataclass(frozen=True)
class Thing:
    """A thing in one frame: what it is, and where its middle is, as parts of the frame's width and height."""

    category: str
    x: float
    y: float


@dataclass
class Object:
    """A thing that was followed: where it was last, and by segment where it was first and last."""

    category: str
    x: float
    y: float
    positions: dict[int, tuple[float, float, float, float]] = field(default_factory=dict)


class Tracker:
    """Follows things from frame to frame. What is out of sight for a while and comes back is the same object."""

    def __init__(self) -> None:
        self.objects: list[Object] = []

    def add(self, segment: int, things: Sequence[Thing]) -> None:
        """Adds the things of a frame of a segment; frames come in their order."""
        by_category = defaultdict(list)
        for thing in things:
            by_category[thing.category].append(thing)
        for category, candidates in by_category.items():
            tracked = [one for one in self.objects if one.category == category]
            pairs = sorted(
                ((thing.x - one.x) ** 2 + (thing.y - one.y) ** 2, number, other)
                for number, thing in enumerate(candidates)
                for other, one in enumerate(tracked)
            )
            matched: dict[int, Object] = {}
            used: set[int] = set()
            for _, number, other in pairs:
                if number not in matched and other not in used:
                    matched[number] = tracked[other]
                    used.add(other)
            for number, thing in enumerate(candidates):
                one = matched.get(number)
                if one is None:
                    one = Object(category, thing.x, thing.y)
                    self.objects.append(one)
                one.x, one.y = thing.x, thing.y
                first = one.positions.get(segment, (thing.x, thing.y))
                one.positions[segment] = (first[0], first[1], thing.x, thing.y)


def things(frame: numpy.ndarray) -> list[Thing]:
    """Returns the things in a frame, of the shape (height, width, 3), in RGB."""
    hue, saturation, value = _hsv(frame.astype(numpy.float32) / 255)
    coloured = (saturation > _SATURATED) & (value > _BRIGHT)
    nearest = _nearest_colour(hue)
    height, width = coloured.shape
    objects = []
    for number, (name, _) in enumerate(_COLOURS):
        mask = coloured & (nearest == number)
        # One wide as the frame is background.
        if not _SMALLEST <= mask.mean() <= _LARGEST:
            continue
        labels, _ = ndimage.label(mask)
        for index, place in enumerate(ndimage.find_objects(labels), start=1):
            part = labels[place] == index
            if not _SMALLEST <= part.sum() / coloured.size <= _LARGEST or min(part.shape) < 4:
                continue
            shape = _shape(part)
            if shape is not None:
                rows, columns = place
                x = (columns.start + columns.stop) / 2 / width
                y = (rows.start + rows.stop) / 2 / height
                objects.append(Thing(f"{name} {shape}", round(x, 3), round(y, 3)))
    return objects


def motion(path: tuple[float, float, float, float]) -> str:
    """Returns in words how an object moved in a segment."""
    across, down = path[2] - path[0], path[3] - path[1]
    if max(abs(across), abs(down)) < _STILL:
        return "stands still"
    if abs(across) >= abs(down):
        return "moves to the right" if across > 0 else "moves to the left"
    return "moves down" if down > 0 else "moves up"


def _shape(part: numpy.ndarray) -> str | None:
    """Returns what a mask that fills its box shows: by the part of the box, and of its corners, that it fills."""
    height, width = part.shape
    if not 0.6 < width / height < 1.67:
        return None
    filled = part.mean()
    edge = max(1, min(part.shape) // 6)
    corners = [part[:edge, :edge], part[:edge, -edge:], part[-edge:, :edge], part[-edge:, -edge:]]
    full = [corner.mean() > 0.5 for corner in corners]
    if filled > 0.9 and all(full):
        return "square"
    if 0.68 < filled < 0.88 and not any(full):
        return "circle"
    if 0.38 < filled < 0.66 and full == [False, False, True, True]:
        return "triangle"
    return None


def _hsv(frame: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Returns hue in degrees, saturation and value from 0 to 1."""
    red, green, blue = frame[..., 0], frame[..., 1], frame[..., 2]
    value, least = frame.max(-1), frame.min(-1)
    spread = value - least
    safe = numpy.where(spread > 0, spread, 1)
    hue = numpy.select(
        [value == red, value == green],
        [((green - blue) / safe) % 6, (blue - red) / safe + 2],
        (red - green) / safe + 4,
    )
    return hue * 60, numpy.where(value > 0, spread / numpy.where(value > 0, value, 1), 0), value


def _nearest_colour(hue: numpy.ndarray) -> numpy.ndarray:
    away = numpy.stack([numpy.abs((hue - degrees + 180) % 360 - 180) for _, degrees in _COLOURS])
    nearest: numpy.ndarray = away.argmin(0)
    return nearest
