"""A connection that notes what the real client sends, and answers as PID 1 would."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.guest.protocol import Guest, NoSuchUser, TerminalBusy
from tvsnap.model.errors import SandboxRefused

OUTCOME = b"0 1000 4 0 0 0"


def frame(letter: str, payload: bytes = b"") -> bytes:
    """Returns an answer as bytes."""
    return struct.pack("<I", len(payload) + 1) + letter.encode() + payload


class Recorder:
    """Plays PID 1: what was sent is in `sent`."""

    def __init__(self, *answers: bytes) -> None:
        self.sent = b""
        self._answers = b"".join(answers)

    def sendall(self, data: bytes, /) -> None:
        self.sent += data

    def recv(self, size: int, /) -> bytes:
        some, self._answers = self._answers[:size], self._answers[size:]
        return some

    def settimeout(self, seconds: float | None, /) -> None: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...

    def unread(self) -> int:
        """Returns how many bytes of the answers nobody took."""
        return len(self._answers)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One use of the client.

    Attributes:
        act: what is asked.
        requests: the names of what is sent then, as protocol.h has them.
        answers: the names of the answers and their payloads.
        raises: what the client makes of it, if it is an error.
    """

    act: Callable[[Guest], object]
    requests: tuple[str, ...]
    answers: tuple[tuple[str, bytes], ...] = ()
    raises: type[Exception] | None = None


def _numbered(guest: Guest) -> object:
    guest.number_processes(41)
    return guest.run(b"echo one\nexit 3", 60.0, 1 << 20)


def _executed(guest: Guest) -> object:
    environment = [("LANG", "C"), ("EMPTY", "")]
    return guest.execute(
        ["/bin/sh", "-c", 'cat; echo "$LANG"'], timeout=5.0, limit=9, user="1000", cwd=".", stdin=b"in", env=environment
    )


END = ("ANSWER_END", OUTCOME)
INFO = b"16 1 0 120-%b 3 1 %b 1" % (b"0f" * 32, b"a5" * 32)
EXCHANGES = {
    "run": Exchange(
        lambda guest: guest.run(b"echo", 1.0, 99),
        ("REQUEST_RUN",),
        (("ANSWER_OUTPUT", b"ab"), ("ANSWER_OUTPUT", b"c"), ("ANSWER_OUTPUT", b"d"), END),
    ),
    "run where a program holds the terminal": Exchange(
        lambda guest: guest.run(b"echo", 1.0, 99), ("REQUEST_RUN",), (("ANSWER_BUSY", b"vim"),), TerminalBusy
    ),
    "run while busy": Exchange(
        lambda guest: guest.run(b"", 1.0, 99), ("REQUEST_RUN",), (("ANSWER_ERROR", b"busy"),), SandboxRefused
    ),
    "numbered": Exchange(_numbered, ("REQUEST_NUMBER", "REQUEST_RUN"), (END,)),
    "execute": Exchange(_executed, ("REQUEST_EXECUTE",), (("ANSWER_OUTPUT", b"in"), END)),
    "execute as nobody known": Exchange(
        lambda guest: guest.execute(["id"], timeout=1.0, limit=1, user="nobody-known"),
        ("REQUEST_EXECUTE",),
        (("ANSWER_NO_USER", b""),),
        NoSuchUser,
    ),
    "interrupt": Exchange(Guest.interrupt, ("REQUEST_CANCEL",)),
    "keys": Exchange(lambda guest: guest.keys(b"ls\r\x1b[A", 2.0), ("REQUEST_KEYS",), (END,)),
    "terminal": Exchange(
        Guest.terminal, ("REQUEST_TERMINAL",), (("ANSWER_SIZE", b"80 24"), ("ANSWER_TERMINAL", b"$ "))
    ),
    "state": Exchange(
        Guest.shell_state,
        ("REQUEST_STATE", "REQUEST_STATE"),
        (("ANSWER_LATER", b""), ("ANSWER_STATE", b"cwd=/")),
    ),
    "state of a shell that is not idle": Exchange(Guest.shell_state, ("REQUEST_STATE",), (("ANSWER_NOT_IDLE", b""),)),
    "info": Exchange(Guest.info, ("REQUEST_INFO",), (("ANSWER_INFO", INFO),)),
    "waits": Exchange(lambda guest: guest.data_waits([0, 3], [17, 20]), ("REQUEST_WAITS",), (("ANSWER_WAITS", b"1"),)),
    "put back": Exchange(
        lambda guest: guest.put_terminal_back(b"$ \x00", 4711, 12), ("REQUEST_PUT_BACK",), (("ANSWER_PUT_BACK", b""),)
    ),
    "attach": Exchange(lambda guest: guest.attach(80, 24), ("REQUEST_ATTACH",), (("ANSWER_ATTACHED", b""),)),
    "close": Exchange(Guest.close, ("REQUEST_QUIT",)),
}
"""Each thing that the client can ask, and each answer that it knows."""


def recorded() -> dict[str, bytes]:
    """Returns what the client sends in each exchange: real frames."""
    from tests.native.header import read_header

    answers = read_header().enums["answer_type"]
    found: dict[str, bytes] = {}
    for name, exchange in EXCHANGES.items():
        connection = Recorder(*(frame(str(answers[kind]), payload) for kind, payload in exchange.answers))
        guest = Guest(connection)
        try:
            exchange.act(guest)
        except (TerminalBusy, NoSuchUser, SandboxRefused):
            assert exchange.raises, name
        found[name] = connection.sent
    return found
