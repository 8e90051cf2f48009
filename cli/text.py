"""Text for terminals: makes output of sandboxes harmless, and quantities readable."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvsnap.model.calls import ToolCall

NEWLINE = "⏎"
ELLIPSIS = "…"
TIMES = "\u00d7"

# Characters that control a terminal or that make text look like another: control characters except tab and line feed,
# direction marks, invisible ones (separators, fillers, tags), surrogates, and codes of no character.
# Joiners and selectors of variants are kept: scripts and emoji need them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Returns `text` with other characters than plain text written out: `^[` for escape, `\\x9b`, `\\u202e`."""
    return _UNSAFE.sub(_show, text)


def _show(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return "^" + chr(code + 0x40)
    if code == 0x7F:
        return "^?"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as a surrogate
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str) -> str:
    """Returns `text` as one harmless line: line feeds as ⏎, tabs and runs of blanks as one blank."""
    lines = re.sub(r"[ \t]+", " ", text.strip("\n")).replace("\n", NEWLINE)
    return visible(lines).strip()


def cut(text: str, width: int) -> str:
    """Returns `text` cut to `width` cells of a terminal, ending in `…` if it was longer."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS


def cut_apart(text: str, others: Iterable[str], width: int) -> str:
    """Returns a text cut to `width` cells, so that it differs from others that begin in the same way.

    If the cut would remove the part that differs, it instead removes the common part behind the first word.

    Args:
        text: the text.
        others: those beside it, the text itself among them or not.
        width: of a terminal, in cells.
    """
    shown = cut(text, width)
    alike = [other for other in others if other != text and other.startswith(shown.removesuffix(ELLIPSIS))]
    if shown == text or not alike:
        return shown
    first = cut(text.partition(" ")[0], width // 3)
    together = zip(text, *alike, strict=False)
    common = next(
        (place for place, letters in enumerate(together) if len(set(letters)) > 1), min(map(len, (text, *alike)))
    )
    blank = text.rfind(" ", 0, common) + 1
    near = max(0, common - width // 3)
    word = re.compile(r"(?<=\W)\w").search(text, near, common)
    begin = blank if blank >= near else word.start() if word else common - width // 6
    return cut(f"{first} {ELLIPSIS}{text[begin:]}", width)


def first_lines(text: str, limit: int) -> tuple[str, int]:
    """Returns the first `limit` lines of `text`, and how many more there are."""
    lines = text.splitlines()
    return "\n".join(lines[:limit]), max(0, len(lines) - limit)


def seconds(value: float) -> str:
    """Returns a readable duration: `34 µs`, `12 ms`, `2.1 s`, `3m 05s`, `2h 10m`."""
    if value < 0:
        return "-" + seconds(-value)
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{value * 1e3:.1f} ms" if value < 0.00995 else f"{value * 1e3:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 99.5:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 100:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"


def size(value: float) -> str:
    """Returns a readable number of bytes, in powers of 1024: `812 B`, `4.0 KiB`, `1.2 MiB`, `34 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 9.95 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def ago(then: float) -> str:
    """Returns a readable time, given in seconds since the epoch: `3 min ago`, `2025-08-07 20:46`."""
    age = time.time() - then
    if age < 60:
        return "just now"
    if age < 3600:
        return f"{age / 60:.0f} min ago"
    if age < 24 * 3600:
        return f"{age / 3600:.0f} h ago"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(then))


def count(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: `1 call`, `1,659 calls`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(part: float, whole: float) -> str:
    """Returns a share as `93.1 %`, or `-` if the whole is zero."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def costs(by_unit: Mapping[str, float]) -> str:
    """Returns costs by unit as `1,200 tokens, 0.0312 usd`."""
    return ", ".join(
        f"{number:,.0f} {one_line(unit)}" if number >= 1000 else f"{number:.6g} {one_line(unit)}"
        for unit, number in by_unit.items()
    )


def call_line(call: ToolCall) -> str:
    """Returns a tool call as one harmless line: the command of `bash`, else the tool's name and its arguments."""
    from tvsnap.model.calls import MAIN_ARGUMENTS

    arguments = dict(call.arguments)
    main = next((arguments.pop(name) for name in MAIN_ARGUMENTS if isinstance(arguments.get(name), str)), None)
    words = [] if call.name == "bash" else [call.name]
    if main is not None:
        words.append(one_line(main))
    words += [f"{name}={one_line(str(value))}" for name, value in sorted(arguments.items())]
    return visible(" ".join(words)) or call.name


def call_text(call: ToolCall) -> str:
    """Returns a full tool call as harmless text, with as many lines as it has."""
    arguments = dict(call.arguments)
    if call.name == "bash" and set(arguments) == {"command"}:
        return visible(str(arguments["command"]))
    lines = [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()]
    return visible("\n".join([call.name, *lines]))


def place_words(first: int, last: int) -> str:
    """Returns a range of places in rollouts, in words.

    Args:
        first: the first one.
        last: the last one; `DEEPEST` means all from there on.
    """
    from tvsnap.model.stats import DEEPEST

    if first == last:
        return f"{first}+" if first == DEEPEST else str(first)
    return f"{first}-{last}"
