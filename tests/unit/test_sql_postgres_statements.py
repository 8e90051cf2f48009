"""A text is split into statements where psql splits it."""

from __future__ import annotations

import pytest

from tvsnap.plugins.sql.inside.postgres.statements import statements

ATOMIC = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END;"
PROCEDURE = "CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC SELECT 1; END;"
RULE = "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2);"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT 1", ["SELECT 1"]),
        (" SELECT 1; -- that is all\n", [" SELECT 1; -- that is all\n"]),
        ("", [""]),
        (";; ;", [";; ;"]),
        ("SELECT 1;; /* a; */ SELECT 2", ["SELECT 1;", "/* a; */ SELECT 2"]),
        ("SELECT ';'; SELECT $$;$$", ["SELECT ';';", "SELECT $$;$$"]),
        ("SELECT \";\"; SELECT E'\\';'", ['SELECT ";";', "SELECT E'\\';'"]),
        (f"{RULE} SELECT 3", [RULE, "SELECT 3"]),
        (f"{ATOMIC} SELECT 3", [ATOMIC, "SELECT 3"]),
        (f"{PROCEDURE} BEGIN; END", [PROCEDURE, "BEGIN;", "END"]),
        ("BEGIN; SELECT 1; END;", ["BEGIN;", "SELECT 1;", "END;"]),
        ("SELECT 1; SELECT 'no end; SELECT 2", ["SELECT 1;", "SELECT 'no end; SELECT 2"]),
        ("SELECT 1); SELECT 2", ["SELECT 1);", "SELECT 2"]),
    ],
)
def test_where_statements_end(text: str, parts: list[str]) -> None:
    assert statements(text) == parts
