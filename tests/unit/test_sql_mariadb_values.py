"""MariaDB's protocol, with a server that says what it is told to; its values; its account of transactions."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.plugins.sql.inside.mariadb.facts import transaction
from tvsnap.plugins.sql.inside.mariadb.protocol import Connection, Field, Lost, Refused, Reply
from tvsnap.plugins.sql.inside.mariadb.values import literal, quoted, unparsed, value

LONG, DOUBLE, BIT, DECIMAL, BLOB, STRING = 3, 5, 16, 246, 252, 253
UTF8, BINARY = 45, 63

GREETING = b"\x0a10.11.0\0" + struct.pack("<I", 7) + b"abcdefgh\0" + bytes(20)
OK = b"\0\0\0\x02\0\0\0"
MORE = 0x8
SESSION_CHANGED = 0x4000


def text(data: bytes) -> bytes:
    """Returns bytes as the protocol writes them, with their length."""
    if len(data) < 251:
        return bytes([len(data)]) + data
    return b"\xfe" + struct.pack("<Q", len(data)) + data


def column(name: str, kind: int = STRING, charset: int = UTF8) -> bytes:
    parts = [b"def", b"d", b"t", b"t", name.encode(), name.encode()]
    return b"".join(map(text, parts)) + b"\x0c" + struct.pack("<HIBHB", charset, 10, kind, 0, 0) + b"\0\0"


def end(warnings: int = 0, status: int = 0) -> bytes:
    return b"\xfe" + struct.pack("<HH", warnings, status)


def rows(names: list[str], values: list[list[bytes | None]], status: int = 0) -> list[bytes]:
    """Returns the packets of a result."""
    data = [b"".join(b"\xfb" if one is None else text(one) for one in row) for row in values]
    return [bytes([len(names)]), *map(column, names), end(), *data, end(status=status)]


def error(number: int, state: str, message: str) -> bytes:
    return b"\xff" + struct.pack("<H", number) + b"#" + state.encode() + message.encode()


def framed(packets: list[bytes], first: int = 1) -> bytes:
    parts = []
    for sequence, packet in enumerate(packets, first):
        whole = packet
        while len(whole) >= 0xFFFFFF:
            parts.append(b"\xff\xff\xff" + bytes([sequence & 0xFF]) + whole[:0xFFFFFF])
            whole = whole[0xFFFFFF:]
        parts.append(struct.pack("<I", len(whole) | (sequence & 0xFF) << 24) + whole)
    return b"".join(parts)


@contextmanager
def told(folder: Path, packets: list[bytes], chunk: int = 1 << 20) -> Iterator[Connection]:
    """A connection to a server that answers its first statement with these packets, `chunk` bytes at a time."""
    path = str(folder / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(framed([GREETING], 0))
                peer.recv(1 << 16)
                peer.sendall(framed([OK], 2))
                peer.recv(1 << 16)
                data = framed(packets)
                for at in range(0, len(data), chunk):
                    peer.sendall(data[at : at + chunk])

        thread = threading.Thread(target=serve)
        thread.start()
        connection = Connection(path, timeout=10)
        try:
            yield connection
        finally:
            connection.close()
            thread.join()


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_a_result_in_pieces(tmp_path: Path, chunk: int) -> None:
    values: list[list[bytes | None]] = [[b"1", None], [b"x" * 300, b""], [b"2", b"\xff"]]
    with told(tmp_path, rows(["a", "b"], values), chunk) as connection:
        (reply,) = connection.run("SELECT")
    assert [field.name for field in reply.fields or []] == ["a", "b"]
    assert reply.rows == values
    assert not reply.more


def test_several_results_and_then_an_error(tmp_path: Path) -> None:
    used = text(b"\x01" + text(text(b"shop")))
    changed = b"\0\x03\0" + struct.pack("<HH", MORE | SESSION_CHANGED, 2) + text(b"") + used
    packets = [*rows(["a"], [[b"1"]], MORE), changed, error(1146, "42S02", "Table 'x' doesn't exist")]
    seen: list[Reply] = []
    with told(tmp_path, packets) as connection:  # noqa: SIM117
        with pytest.raises(Refused, match=r"ERROR 1146 \(42S02\): Table 'x' doesn't exist") as caught:
            seen.extend(connection.run("SELECT; UPDATE; SELECT"))
    assert (caught.value.number, caught.value.state) == (1146, "42S02")
    assert [(reply.rows, reply.affected, reply.database) for reply in seen] == [([[b"1"]], 0, None), ([], 3, "shop")]


def test_what_a_statement_tells(tmp_path: Path) -> None:
    used = text(b"\x01" + text(text(b"shop")))
    packet = b"\0\x03\0" + struct.pack("<HH", SESSION_CHANGED, 2) + text(b"said") + used
    with told(tmp_path, [packet]) as connection:
        (reply,) = connection.run("UPDATE")
    assert (reply.fields, reply.affected, reply.warnings, reply.database) == (None, 3, 2, "shop")


def test_rows_beyond_those_wanted_are_passed_over(tmp_path: Path) -> None:
    many: list[list[bytes | None]] = [[str(number).encode()] for number in range(2000)]
    with told(tmp_path, [*rows(["n"], many, MORE), *rows(["n"], [[b"last"]])], 1000) as connection:
        first, last = connection.run("SELECT", max_rows=3)
    assert (first.rows, first.more) == (many[:3], True)
    assert (last.rows, last.more) == ([[b"last"]], False)


def test_bytes_beyond_those_wanted_are_passed_over(tmp_path: Path) -> None:
    many: list[list[bytes | None]] = [[b"x" * 100] for _ in range(50)]
    with told(tmp_path, [*rows(["n"], many, MORE), *rows(["n"], many)]) as connection:
        first, last = connection.run("SELECT", max_bytes=1000)
    assert 9 <= len(first.rows) <= 11
    assert first.more
    assert (last.rows, last.more) == ([], True)


def test_a_value_longer_than_a_packet(tmp_path: Path) -> None:
    long = bytes(range(256)) * 65536
    assert len(text(long)) > 0xFFFFFF
    with told(tmp_path, rows(["a"], [[long], [b"after"]])) as connection:
        assert connection.rows("SELECT") == [[long], [b"after"]]


def test_a_server_that_hangs_up(tmp_path: Path) -> None:
    with told(tmp_path, rows(["a"], [[b"1"]])[:-1]) as connection:
        with pytest.raises(Lost):
            connection.rows("SELECT")
        with pytest.raises(Lost):
            connection.rows("SELECT")


@pytest.mark.parametrize(
    ("field", "raw", "expected"),
    [
        (Field("a", LONG, BINARY), None, None),
        (Field("a", LONG, BINARY), b"-7", -7),
        (Field("a", LONG, BINARY), b"18446744073709551615", 18446744073709551615),
        (Field("a", LONG, BINARY), b"00042", 42),
        (Field("a", DOUBLE, BINARY), b"1e308", 1e308),
        (Field("a", DECIMAL, BINARY), b"0.10", "0.10"),
        (Field("a", 12, BINARY), b"0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        (Field("a", BIT, BINARY, 0x20), b"\x01\x01", 257),
        (Field("a", BIT, BINARY, 0x20), b"1", 49),
        (Field("a", BIT, BINARY, 0xA0), b"49", 49),
        (Field("a", BLOB, UTF8), "é".encode(), "é"),
        (Field("a", BLOB, BINARY), b"text", {"base64": "dGV4dA=="}),
        (Field("a", STRING, UTF8), b"\xff", {"base64": "/w=="}),
        (Field("a", LONG, BINARY), b"\x001", {"base64": "ADE="}),
    ],
)
def test_values(field: Field, raw: bytes | None, expected: object) -> None:
    found = value(field, raw)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("number", "query", "expected"),
    [
        (1064, "SELEC 1", True),
        (1065, "", True),
        (1146, "SELECT * FROM nowhere", False),
        (1064, "CALL dynamic()", False),
        (1064, "/*!50000 EXECUTE */ IMMEDIATE 'SELEC'", False),
        (1064, "prepare p from 'selec'", False),
    ],
)
def test_unparsed(number: int, query: str, expected: bool) -> None:
    assert unparsed(Refused(number, "42000", ""), query) is expected


@given(st.text())
def test_literals_end_where_they_should(data: str) -> None:
    body = literal(data)[1:-1]
    read, at = [], 0
    while at < len(body):
        pair = body[at : at + 2]
        escaped = {"\\\\": "\\", "''": "'", "\\0": "\0"}.get(pair)
        assert escaped or body[at] not in "\\'\0"
        read.append(escaped or body[at])
        at += 2 if escaped else 1
    assert "".join(read) == data


def test_quoted() -> None:
    assert quoted("a`b") == "`a``b`"


REPORT = """
TRANSACTIONS
------------
Trx id counter 24
LIST OF TRANSACTIONS FOR EACH SESSION:
---TRANSACTION 23, ACTIVE 12 sec
2 lock struct(s), heap size 1128, 3 row lock(s), undo log entries 1
MariaDB thread id 4, OS thread handle 140128103601856, query id 594 localhost root
Trx read view will not see trx with id >= 23, sees < 23
---TRANSACTION (0x7f721ea5ab80), ACTIVE 0 sec
0 lock struct(s), heap size 1128, 0 row lock(s)
MariaDB thread id 44, OS thread handle 140128103601856, query id 595 localhost root
--------
FILE I/O
"""


def test_a_transaction_without_what_moves_by_itself() -> None:
    found = transaction(REPORT, 4)
    assert found == (
        "23",
        "2 lock struct(s), heap size 1128, 3 row lock(s), undo log entries 1",
        "Trx read view will not see trx with id >= 23, sees < 23",
    )
    assert transaction(REPORT.replace("12 sec", "13 sec").replace("query id 594", "query id 700"), 4) == found
    assert transaction(REPORT.replace("undo log entries 1", "undo log entries 2"), 4) != found
    assert transaction(REPORT, 44) == ("(0x7f721ea5ab80)", "0 lock struct(s), heap size 1128, 0 row lock(s)")
    assert transaction(REPORT, 5) == ()
