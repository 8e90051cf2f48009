"""At which states environments stand, in memory that the processes of a server share: one writes, the others read."""

from __future__ import annotations

import mmap
import struct
import zlib
from collections import defaultdict

SLOTS = 1 << 18
"""How many there are: more than environments, so that few states have the same one."""
_SLOT = struct.Struct("<IB16s43s")
_CHECKED = struct.Struct("<B16s43s")
_LONGEST = 43
_SEVERAL = 255
"""In the place of an id's length: more than one environment, or an id that is too long."""
_EMPTY = bytes(_SLOT.size)


class NotKnown(Exception):
    """Only the process that writes knows what stands at a state."""


class Places:
    """A slot for each state, found by its name, which has the id of the environment that stands there.

    Where several states have the same slot, or a slot is just being written, a reader has to ask the process that
    writes. Memory is used for the slots that were ever written.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SLOTS * _SLOT.size)
        self._standing: dict[int, dict[str, str]] = defaultdict(dict)  # of the process that writes

    def clear(self) -> None:
        """Takes all away, at the start of the process that writes."""
        self._memory.madvise(mmap.MADV_REMOVE)

    def show(self, state: str, environment: str | None) -> None:
        """Writes which environment stands at a state; None for none."""
        _, number = _slot_of(state)
        standing = self._standing[number]
        if environment is None:
            standing.pop(state, None)
        else:
            standing[state] = environment
        slot = _EMPTY
        if standing:
            key, id = next(iter(standing.items()))
            name = id.encode("utf-8", "surrogatepass")
            alone = len(standing) == 1 and len(name) <= _LONGEST
            checked = _CHECKED.pack(len(name) if alone else _SEVERAL, _slot_of(key)[0], name[:_LONGEST])
            slot = zlib.crc32(checked).to_bytes(4, "little") + checked
        else:
            del self._standing[number]
        self._memory[number * _SLOT.size : (number + 1) * _SLOT.size] = slot

    def standing(self, state: str) -> str | None:
        """Returns the environment that stands at a state; None if none does.

        Raises:
            NotKnown: the process that writes has to be asked.
        """
        key, number = _slot_of(state)
        slot = self._memory[number * _SLOT.size : (number + 1) * _SLOT.size]
        if slot == _EMPTY:
            return None
        checksum, length, its, name = _SLOT.unpack(slot)
        if length == _SEVERAL or zlib.crc32(slot[4:]) != checksum:
            raise NotKnown
        return name[:length].decode("utf-8", "surrogatepass") if its == key else None


def _slot_of(state: str) -> tuple[bytes, int]:
    """Returns what a slot says of a state, and the slot's number."""
    name = bytes.fromhex(state)
    return name[:16], int.from_bytes(name[16:20], "little") % SLOTS
