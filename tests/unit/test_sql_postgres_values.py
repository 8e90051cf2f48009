"""What is pure of the PostgreSQL session: values from the system's text and back, and the account that it keeps."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvsnap.plugins.sql.inside.postgres.ledger import Ledger
from tvsnap.plugins.sql.inside.postgres.values import (
    PART,
    bytea,
    codec,
    conninfo,
    copy_text,
    literal,
    refusal,
    value,
)
from tvsnap.plugins.sql.inside.system import SystemFailed, quoted

BOOL, BYTEA, INT8, TEXT, OID, FLOAT4, FLOAT8, NUMERIC = 16, 17, 20, 25, 26, 700, 701, 1700


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (b"-9223372036854775808", INT8, -(2**63)),
        (b"4294967295", OID, 2**32 - 1),
        (b"t", BOOL, True),
        (b"f", BOOL, False),
        (b"0.1", FLOAT4, 0.1),
        (b"1e+300", FLOAT8, 1e300),
        (b"NaN", FLOAT8, "NaN"),
        (b"-Infinity", FLOAT4, "-Infinity"),
        (b"1.50", NUMERIC, "1.50"),
        ("é".encode(), TEXT, "é"),
        (b"a\xffb", TEXT, "a\\xffb"),
        (b"\\x00ff", BYTEA, {"base64": "AP8="}),
    ],
)
def test_values_keep_their_type_and_lose_nothing(text: bytes, kind: int, expected: object) -> None:
    found = value(text, kind, "utf-8")
    assert found == expected
    assert type(found) is type(expected)


def _hex(data: bytes) -> bytes:
    return b"\\x" + data.hex().encode()


def _escaped(data: bytes) -> bytes:
    parts = [b"\\\\" if one == 0x5C else bytes((one,)) if 0x20 <= one < 0x7F else b"\\%03o" % one for one in data]
    return b"".join(parts)


@pytest.mark.parametrize("write", [_hex, _escaped])
@given(data=st.binary())
def test_bytea_is_read_in_both_notations(write: Callable[[bytes], bytes], data: bytes) -> None:
    assert bytea(write(data)) == data
    assert value(write(data), BYTEA, "utf-8") == {"base64": base64.b64encode(data).decode()}


def test_codecs_follow_the_systems_names() -> None:
    assert [codec(name) for name in ("UTF8", "SQL_ASCII", "LATIN1", "WIN1252", "MULE_INTERNAL")] == [
        "utf-8",
        "utf-8",
        "iso8859-1",
        "cp1252",
        "utf-8",
    ]


def test_what_the_server_says_is_told_apart_from_what_libpq_says() -> None:
    said = (
        'connection to server on socket "/run/postgresql/.s.PGSQL.5432" failed: FATAL:  database "x" does not exist\n'
    )
    assert refusal(said) == 'FATAL:  database "x" does not exist'
    assert refusal("invalid connection option") == "invalid connection option"


def test_quotes_are_quoted() -> None:
    assert conninfo(dbname="it's a \\", port=5432) == "dbname='it\\'s a \\\\' port='5432'"
    assert quoted('odd "one"') == '"odd ""one"""'
    assert literal("it's") == "'it''s'"


def _read_copy(text: str) -> list[list[str | None]]:
    """Reads COPY's text format as its documentation has it."""
    names = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}

    def field(said: str) -> str | None:
        return None if said == "\\N" else re.sub(r"\\(.)", lambda match: names[match[1]], said, flags=re.DOTALL)

    return [[field(said) for said in line.split("\t")] for line in text.split("\n")[:-1]]


_FIELDS = st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))


@given(rows=st.lists(st.lists(_FIELDS, min_size=2, max_size=2)))
def test_copy_gives_back_what_was_put_in(rows: list[list[str | None]]) -> None:
    assert _read_copy(b"".join(copy_text(rows)).decode()) == rows


def test_copy_writes_numbers_and_bytes_and_comes_in_parts() -> None:
    assert list(copy_text([[1, 1.5, b"\x00\xff", None]])) == [b"1\t1.5\t\\\\x00ff\t\\N\n"]
    parts = list(copy_text([["x" * 1000]] * 200))
    assert len(parts) > 1
    assert max(map(len, parts)) < PART + 2000
    assert sum(map(len, parts)) == 200 * 1001


def test_a_nul_character_is_refused_by_row() -> None:
    with pytest.raises(SystemFailed, match="row 2 holds a NUL"):
        list(copy_text([["a"], ["b\0"]]))


def _turns(*requests: tuple[str, list[str]]) -> list[int]:
    """Returns how many turns are counted after each request of an open transaction."""
    ledger = Ledger()
    counted = []
    for query, tags in requests:
        ledger.note(query, tags, idle=False)
        counted.append(ledger.turns)
    return counted


def test_the_first_read_of_a_transaction_counts_and_later_ones_do_not() -> None:
    reads = [("SELECT 1", ["SELECT"])] * 3
    assert _turns(("BEGIN", ["BEGIN"]), ("SHOW x", ["SHOW"]), *reads) == [1, 1, 2, 2, 2]


def test_what_a_transaction_holds_unseen_counts_each_time() -> None:
    insert = ("INSERT INTO t VALUES (1)", ["INSERT"])
    hidden = ("WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x", ["SELECT"])
    into = ("SELECT 1 INTO TEMP t", ["SELECT INTO"])
    assert _turns(insert, insert, hidden, into, ("SAVEPOINT a", ["SAVEPOINT"]), ("SELECT 1", ["SELECT"])) == [
        1,
        2,
        3,
        4,
        5,
        5,
    ]


def test_a_new_transaction_is_not_settled() -> None:
    ledger = Ledger()
    ledger.note("BEGIN; SELECT 1", ["BEGIN", "SELECT"], idle=False)
    assert not ledger.settled
    ledger.note("SELECT 1", ["SELECT"], idle=False)
    assert ledger.settled
    ledger.note("COMMIT AND CHAIN", ["COMMIT"], idle=False)
    assert not ledger.settled


def test_a_failed_statement_alone_counts_nothing() -> None:
    assert _turns(("SELEC", []), ("", [])) == [0, 0]


def test_settings_that_may_not_show_keep_a_connection_until_it_is_cleared() -> None:
    ledger = Ledger()
    ledger.note("SELECT 1", ["SELECT"], idle=True)
    assert not ledger.kept
    ledger.note("SELECT Set_Config('my.x', '1', false)", ["SELECT"], idle=True)
    assert ledger.kept
    ledger.note("DISCARD PLANS", ["DISCARD PLANS"], idle=True)
    assert ledger.kept
    ledger.note("DISCARD ALL", ["DISCARD ALL"], idle=True)
    assert not ledger.kept
    ledger.note("SET my.x = 1", ["SET"], idle=True)
    assert ledger.kept


def test_whoever_sets_a_seed_is_remembered() -> None:
    ledger = Ledger()
    ledger.note("SELECT random()", ["SELECT"], idle=True)
    assert not ledger.seeded
    ledger.note("select SetSeed(0.5)", ["SELECT"], idle=True)
    assert ledger.seeded
