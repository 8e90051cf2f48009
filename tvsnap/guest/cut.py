"""Marks of output that is incomplete, and cuts between whole characters."""

from __future__ import annotations

import codecs

CUT = "\n[... output cut here ...]\n"
INTERRUPTED = "[interrupted after %g s]\n"
_CONTINUING = bytes(range(0x80, 0xC0))  # continuation bytes of UTF-8: at most three follow a first byte


def whole(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Removes partial UTF-8 characters at a cut, given the output before and after it; keeps other bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(head[-3:])
    incomplete = len(decoder.getstate()[0])
    rest = len(tail[:4]) - len(tail[:4].lstrip(_CONTINUING))
    return head[: len(head) - incomplete], tail[rest if rest < 4 else 0 :]
