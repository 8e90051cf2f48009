"""What a hostile sandbox may send: its PID 1's answers, its shell's state, its terminal. None of it costs us much."""

from __future__ import annotations

import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.unit.test_terminal_environment import screen
from tvsnap.environments.screen import encode_keys
from tvsnap.guest import protocol
from tvsnap.guest.declarations import declarations
from tvsnap.guest.protocol import Guest
from tvsnap.model.errors import InfrastructureError, SandboxDied
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.shell.dump import NotUnderstood, parse_dump
from tvsnap.sandboxes.shell_report import shell_fingerprint, shell_items

PATIENCE = 20.0
"""Seconds for what takes well below one on a quiet machine, and hours where it goes wrong."""


def frame(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload) + 1) + kind + payload


def end(*words: int) -> bytes:
    return frame(b"X", " ".join(map(str, words)).encode())


class Impostor:
    """A PID 1 that answers whatever it is asked with the same bytes, again and again if that is wanted."""

    def __init__(self, answer: bytes, *, pause: float = 0.0, forever: bool = False) -> None:
        ours, self._theirs = socket.socketpair()
        self.guest = Guest(ours)
        self._answer, self._pause, self._forever = answer, pause, forever
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        try:
            while self._answer:
                for at in range(0, len(self._answer), 1 if self._pause else len(self._answer)):
                    self._theirs.sendall(self._answer[at : at + 1] if self._pause else self._answer)
                    time.sleep(self._pause)
                if not self._forever:
                    return
        except OSError:
            pass

    def close(self) -> None:
        self.guest.abandon()
        self._theirs.close()
        self._thread.join(60)


@pytest.fixture
def impostors() -> Iterator[list[Impostor]]:
    made: list[Impostor] = []
    yield made
    for impostor in made:
        impostor.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (struct.pack("<I", 0xFFFFFFFF), "announced an answer of 4294967295 bytes"),
        (struct.pack("<I", 0), "announced an answer of 0 bytes"),
        (frame(b"O", b"x" * 1001), "more output than the 1000 bytes"),
        (frame(b"O", b"x" * 600) * 2, "more output than the 1000 bytes"),
        (frame(b"O", b"") * 4, "in more than 3 parts"),
        (frame(b"X", b""), "answers nonsense"),
        (frame(b"X", b"0 1 2"), "answers nonsense"),
        (frame(b"X", b"zero 0 0 0 0 0"), "answers nonsense"),
        (end(256, 0, 0, 0, 0, 0), "answers nonsense"),
        (end(0, -5, 0, 0, 0, 0), "answers nonsense"),
        (end(0, 10**19, 0, 0, 0, 0), "answers nonsense"),
        (frame(b"X", b"0 " + b"9" * 5000 + b" 0 0 0 0"), "answers nonsense"),
        (frame(b"E", b"\xff" * 100_000), "refused a request"),
        (frame(b"?", b"\x1b]0;x\x07"), "refused a request"),
    ],
)
def test_what_makes_no_sense_ends_the_sandbox(impostors: list[Impostor], answer: bytes, reason: str) -> None:
    impostors.append(Impostor(answer))
    with pytest.raises(InfrastructureError, match=reason) as error:
        impostors[0].guest.run(b"true", 60.0, 1000)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("answer", [b"1 1 0 x 1 1", b"1 1 0 1-f 1", b"1 1 0 1-f 99999999999 1", b"\xff"])
def test_what_makes_no_sense_of_its_state(impostors: list[Impostor], answer: bytes) -> None:
    impostors.append(Impostor(frame(b"I", answer)))
    with pytest.raises(SandboxDied, match="nonsense"):
        impostors[0].guest.info()


@pytest.mark.parametrize(
    ("answer", "pause"),
    [(b"", 0.0), (frame(b"O", b""), 0.0), (frame(b"O", b"xx" * 100), 0.02), (frame(b"L", b""), 0.0)],
)
def test_an_answer_without_end_is_not_waited_for(
    impostors: list[Impostor], monkeypatch: pytest.MonkeyPatch, answer: bytes, pause: float
) -> None:
    monkeypatch.setattr(protocol, "GRACE", 0.3)
    impostors.append(Impostor(answer, pause=pause, forever=bool(answer)))
    began = time.process_time()
    with pytest.raises(InfrastructureError):
        impostors[0].guest.run(b"true", 0.2, 1 << 30)
    assert time.process_time() - began < PATIENCE


def test_a_shell_that_says_nothing_is_waited_for_once() -> None:
    ours, theirs = socket.socketpair()
    asked = []

    def answer() -> None:
        while request := theirs.recv(4096):
            asked.append(request)
            theirs.sendall(frame(b"L", b""))

    thread = threading.Thread(target=answer)
    thread.start()
    guest = Guest(ours)
    try:
        assert guest.shell_state(0.3) is None
        first = len(asked)
        assert [guest.shell_state(0.3) for _ in range(20)] == [None] * 20
        assert (first > 3, len(asked) - first) == (True, 20)
    finally:
        guest.abandon()
        thread.join()
        theirs.close()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    ("unit", "before", "after", "times"),
    [
        (b"a", b'declare -- x="', b'"\n', 4 << 20),
        (b'\\"', b'declare -- x="', b'"\n', 1 << 20),
        (b'[0]="a" ', b"declare -a x=(", b")\n", 300_000),
        (b"declare -a x=(", b"", b"", 200_000),
        (b"declare -a x=(\n", b"", b"", 200_000),
        (b"declare -- x=$'\n", b"", b"", 200_000),
        (b'declare -- x="a', b"", b"\n", 200_000),
        (b"f () \n{\n", b"\1functions\n", b"", 300_000),
    ],
)
def test_the_state_of_a_shell_is_read_in_proportion(unit: bytes, before: bytes, after: bytes, times: int) -> None:
    dump = before + unit * times + after
    memory, began = peak(), time.process_time()
    shell_fingerprint(dump)
    shell_items(dump)
    with pytest.raises(NotUnderstood):
        parse_dump(dump)
    assert time.process_time() - began < PATIENCE
    assert peak() - memory < 150 * MIB


def test_declarations() -> None:
    text = b"""\
declare -- a="x"
declare -ir b="5"
declare -x c
not understood
declare -- d=$'a\\'\\ndeclare -- fake="x"'
declare -- e="a
declare -- fake=\\"x\\""
declare -a f=([0]="(" [1]=$'\\')' [2]="x y")
declare -A g=(["a b"]="1" )
declare -- broken="x"y
declare -- h="1"
declare -- open="
declare -- i="1
"""
    found = list(declarations(text))
    assert [each.name for each in found] == ["a", "b", "c", "d", "e", "f", "g", "h", "open"][: len(found)]
    assert [each.name for each in found[:8]] == ["a", "b", "c", "d", "e", "f", "g", "h"]
    assert text[found[3].start : found[3].end].endswith(b'fake="x"\'\n')
    assert all(text[each.start : each.end].startswith(b"declare -") for each in found)


TERMINAL = {
    "new lines": b"\n",
    "reverse": b"\x1b[H\x1bM",
    "clear": b"\x1b[2J",
    "clear below": b"\x1b[H\x1b[J",
    "insert": b"\x1b[99L",
    "delete characters": b"\x1b[99P",
    "pattern": b"\x1b#8",
    "other screen": b"\x1b[?1049h\x1b[?1049l",
    "colours": b"\x1b[?5h\x1b[?5l",
    "width": b"\x1b[?3h\x1b[?3l",
    "accents": "\u0301".encode(),
    "accents apart": "\u0301".encode() + b"\x1b[m",
    "title": b"\x1b]0;x",
    "digits": b"\x1b[9999",
}


@pytest.mark.parametrize("size", [(80, 24), (65535, 65535)])
@pytest.mark.parametrize("name", TERMINAL)
def test_a_terminal_is_rendered_in_good_time(name: str, size: tuple[int, int]) -> None:
    data = b"full " * 400 + TERMINAL[name] * (64 * 1024 // len(TERMINAL[name]))
    began, memory = time.process_time(), peak()
    text = screen(data + b"\x07\x18\x1bc\r\nend", *size)
    assert time.process_time() - began < PATIENCE
    assert peak() - memory < 100 * MIB
    assert text.endswith("end\n")
    assert len(text) < 100_000


@pytest.mark.parametrize(
    "sequence",
    [
        "[?1A",
        "[1;2;3A",
        f"[{'9' * 5000}A",
        "[?25n",
        "[>0;1c",
        "[;;;;;;H",
        "[²A",
        "[9J",
        "[?5;2r",
        "]52;c;aGk=\x07",
        "Pq\x1b\\",
    ],
)
def test_a_sequence_that_is_not_known_is_dropped(sequence: str) -> None:
    assert screen(f"\x1b{sequence}\r\nseen".encode()).endswith("seen\n")


def test_a_wide_character_that_is_written_over() -> None:
    assert screen("漢\rab\r\n漢\rx".encode()).startswith("ab\n")


def test_any_bytes_can_be_rendered() -> None:
    chance = random.Random(1)
    parts = [
        b"\x1b[",
        b"\x1b",
        b"?",
        b";",
        b"1049",
        b"h",
        b"l",
        b"J",
        b"r",
        b"A",
        b"\r",
        b"\n",
        b"x",
        b"\xe6\xbc\xa2",
        b"\xcc\x81",
    ]
    for _ in range(300):
        data = b"".join(chance.choice(parts) for _ in range(60)) + bytes(chance.randrange(256) for _ in range(9))
        shown = screen(data, chance.choice((0, 1, 2, 80)), chance.choice((0, 1, 2, 24)))
        assert all(each == "\n" or (each >= " " and not "\x7f" <= each <= "\x9f") for each in shown), (data, shown)


@pytest.mark.parametrize("text", ["<e\u017fc>", "<bac\u212aspace>", "<C-\u017f>"])
def test_keys_are_named_in_ascii(text: str) -> None:
    assert encode_keys(text) == text.encode()
