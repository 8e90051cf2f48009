"""Both sides of the protocol with PID 1 agree: native/init/protocol.h, and the real client."""

from __future__ import annotations

import hashlib
import struct

import pytest

from tests.native.header import read_header
from tests.native.wire import EXCHANGES, INFO, Recorder, frame
from tvsnap.guest import protocol
from tvsnap.guest.protocol import Guest

HEADER = read_header()
REQUESTS, ANSWERS = HEADER.enums["request_type"], HEADER.enums["answer_type"]
DEFINITIONS = {1: "b374ba77925ac504", 2: "380838a620e4f489", 3: "380838a620e4f489"}
"""Versions of the protocol, and a hash of what each defines; since 3, INFO tells digests."""


def requests_in(sent: bytes) -> list[str]:
    """Returns the names of the requests that were sent; fails for what the header does not allow."""
    names = {letter: name for name, letter in REQUESTS.items()}
    found = []
    while sent:
        (length,) = struct.unpack_from("<I", sent)
        body, sent = sent[4 : 4 + length], sent[4 + length :]
        assert len(body) == length
        found.append(names[chr(body[0])])
    return found


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_client_speaks_what_the_header_defines(name: str) -> None:
    exchange = EXCHANGES[name]
    connection = Recorder(*(frame(str(ANSWERS[kind]), payload) for kind, payload in exchange.answers))
    guest = Guest(connection)
    if exchange.raises is None:
        exchange.act(guest)
    else:
        with pytest.raises(exchange.raises):
            exchange.act(guest)
    assert requests_in(connection.sent) == list(exchange.requests)
    assert connection.unread() == 0


def test_every_request_and_every_answer_is_known_to_the_client() -> None:
    assert {name for exchange in EXCHANGES.values() for name in exchange.requests} == set(REQUESTS)
    assert {name for exchange in EXCHANGES.values() for name, _ in exchange.answers} == set(ANSWERS)


def test_letters_are_one_byte_and_name_one_thing() -> None:
    for letters in (REQUESTS, ANSWERS):
        assert all(isinstance(letter, str) and len(letter.encode()) == 1 for letter in letters.values())
        assert len(set(letters.values())) == len(letters)


def test_paths_and_limits_are_the_same() -> None:
    others = HEADER.others
    assert others["CONTROL_PATH"] == f"/{protocol.CONTROL}"
    assert others["INIT_PATH"] == protocol.INIT
    assert others["LENGTH_BYTES"] == struct.calcsize("<I")
    assert others["MOST_OUTPUT_PARTS"] == protocol._MOST_PARTS
    assert others["MAX_TIME_US"] == protocol._LONGEST_DURATION
    assert others["MAX_SHELL_STATE"] == protocol._LARGEST_ANSWER // 2
    assert isinstance(others["MAX_ANSWER_TEXT"], int)
    assert others["MAX_ANSWER_TEXT"] < protocol._LARGEST_ANSWER


@pytest.mark.parametrize("mode", HEADER.enums["shell_mode"])
def test_the_shell_is_idle_in_one_mode(mode: str) -> None:
    number = HEADER.enums["shell_mode"][mode]
    payload = INFO.replace(b"16 1", f"16 {number}".encode())
    info = Guest(Recorder(frame(str(ANSWERS["ANSWER_INFO"]), payload))).info()
    assert info.idle == (mode == "SHELL_IDLE")


def test_what_is_defined_has_a_version() -> None:
    """A PID 1 in a snapshot speaks as it was compiled: another protocol is another version, and has a line above."""
    others = dict(HEADER.others)
    version = others.pop("PROTOCOL_VERSION")
    assert isinstance(version, int)
    defined = repr((sorted(HEADER.enums.items()), sorted(others.items())))
    assert hashlib.sha256(defined.encode()).hexdigest()[:16] == DEFINITIONS[version]
