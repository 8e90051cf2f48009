"""Proves from outside that a sandbox's own processes are as they were before a call, by the comparison in rewind.c.

Programs in a sandbox may lie, and a manipulated shell may claim that nothing has changed. So PID 1 and the idle shell
are recorded before a call. After a call that claims to have changed nothing, they are restored as far as possible, and
the rest is compared.
"""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Callable, Sequence

from tvsnap.guest.actions import GuestActions, exclusive
from tvsnap.model.errors import SandboxDied
from tvsnap.sandboxes.kernel.allowance import Looks
from tvsnap.sandboxes.looks.tracing import HALF_MADE, LONGEST_REASON, library, tries, while_stopped


class OwnProcesses:
    """Records PID 1 and the idle shell of one sandbox as they were when its state last changed."""

    def __init__(self) -> None:
        self._note: Note | None = None

    def note(self, find: Callable[[], Sequence[int]]) -> None:
        """See `Sandbox.note`; `find` returns their process ids on the host, in that order; none if out of reach."""
        if (self._note is None or not self._note.is_valid) and (pids := find()):
            self._note = self._note or Note()
            self._note.take(pids)

    def go_back(self) -> bool:
        """See `Sandbox.go_back`."""
        return self._note is not None and self._note.is_valid and not self._note.go_back()

    def forget(self) -> None:
        """Drops the record: the state has changed, or the processes are used through another connection."""
        if self._note is not None:
            self._note.is_valid = False


class Rewindable(GuestActions):
    """The part of a sandbox that verifies its state without trusting its processes."""

    def __init__(self) -> None:
        super().__init__()
        self._own = OwnProcesses()
        self._looks = Looks()

    @abstractmethod
    def _own_pids(self) -> list[int]:
        """Returns the process ids of PID 1 and of the shell on the host; none if they are out of reach."""

    @exclusive
    def note(self) -> None:
        """See `Sandbox.note`."""
        self._own.note(self._own_pids)

    def go_back(self) -> bool:
        """See `Sandbox.go_back`."""
        return self._own.go_back()

    def settle(self, *, changed: bool) -> None:
        """See `Sandbox.settle`."""
        super().settle(changed=changed)
        if changed:
            self._own.forget()


class Note:
    """A record of processes; each use stops them for a moment. `is_valid` is False if there is no record."""

    def __init__(self) -> None:
        self.is_valid = False
        self._pids: Sequence[int] = ()
        self._handle = library().rewind_new()
        if not self._handle:
            raise MemoryError

    @classmethod
    def of(cls, pids: Sequence[int]) -> Note | None:
        """Returns a record of waiting processes; None if it cannot be taken. See `take`."""
        note = cls()
        note.take(pids)
        return note if note.is_valid else None

    def take(self, pids: Sequence[int]) -> None:
        """Records a sandbox's PID 1 and idle shell (ids on the host), replacing any earlier record; both must wait."""
        self._pids = pids
        reason = ctypes.create_string_buffer(LONGEST_REASON)
        array = (ctypes.c_int * len(pids))(*pids)
        self.is_valid = False
        for _ in tries(pids):
            self.is_valid = self._act("rewind_note", array, len(pids), reason, LONGEST_REASON) == 0
            if self.is_valid:
                return

    def go_back(self) -> str:
        """Restores the processes; returns an empty text if they are as recorded, else the difference in words.

        Raises SandboxDied if they were restored partially, and must not go on.
        """
        reason = ctypes.create_string_buffer(LONGEST_REASON)
        for _ in tries(self._pids):
            result = self._act("rewind_to", reason, LONGEST_REASON)
            if result == 0:
                return ""
            message = reason.value.decode(errors="replace") or "there is no memory to compare them in"
            if result == HALF_MADE:
                raise SandboxDied(f"the sandbox could not be made what it was: {message}")
        return message

    def _act(self, name: str, *arguments: object) -> int:
        function = getattr(library(), name)
        return while_stopped(self._handle, lambda: function(self._handle, *arguments))

    def __del__(self) -> None:
        try:  # noqa: SIM105  # contextlib may be gone, too
            library().rewind_free(self._handle)
        except (AttributeError, TypeError):  # the interpreter is exiting, and imported names may be gone
            pass
