"""What the tools `sql` and `schema` return: exact values, the system's own words, and JSON that is always whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.sql_cases import AWKWARD, ERRORS, MESSAGES, SERIES, STORED, TEXT_LITERAL, VALUES
from tests.conformance.sql_lab import SqlLab
from tests.sql_images import DATABASES, Client, answered
from tvsnap.model.limits import Limits


def test_values(client: Client, sql_system: str) -> None:
    for query, row in VALUES[sql_system]:
        found = client.rows(query)
        assert found == [row], query
        assert [type(one) for one in found[0]] == [type(one) for one in row], query


def test_text_of_all_kinds(client: Client, sql_system: str) -> None:
    literal = TEXT_LITERAL[sql_system](AWKWARD)
    assert client.rows(f"SELECT {literal}") == [[AWKWARD]]
    client.do("CREATE TABLE texts (s VARCHAR(100))", f"INSERT INTO texts VALUES ({literal})")
    assert client.rows("SELECT s FROM texts") == [[AWKWARD]]
    assert client.rows(f"SELECT COUNT(*) FROM texts WHERE s = {literal}") == [[1]]


def test_stored_values(client: Client, sql_system: str) -> None:
    columns, values, row = STORED[sql_system]
    client.do(f"CREATE TABLE kinds ({columns})", f"INSERT INTO kinds VALUES ({values})")
    found = client.rows("SELECT * FROM kinds")
    assert found == [row]
    assert [type(one) for one in found[0]] == [type(one) for one in row]


def test_the_shape_of_results(client: Client) -> None:
    assert client.sql("SELECT 1 AS a, 2 AS b") == {"columns": ["a", "b"], "rows": [[1, 2]]}
    assert client.sql("SELECT id, name FROM items WHERE id > 10") == {"columns": ["id", "name"], "rows": []}
    assert client.sql("SELECT 1 AS a, 2 AS a") == {"columns": ["a", "a"], "rows": [[1, 2]]}
    assert client.sql("UPDATE items SET price = 1 WHERE id <= 2") == {"affected": 2}
    assert client.sql("DELETE FROM items WHERE id > 10") == {"affected": 0}


def test_several_statements(client: Client) -> None:
    said = client.sql("INSERT INTO items VALUES (9, 'nine', 9); SELECT name FROM items WHERE id = 9; SELECT 2 AS two;")
    assert said == {
        "results": [{"affected": 1}, {"columns": ["name"], "rows": [["nine"]]}, {"columns": ["two"], "rows": [[2]]}]
    }


def test_an_error_between_other_statements(client: Client, sql_system: str) -> None:
    """Each statement is a transaction of its own; after an error, psql goes on, and the two other clients do not."""
    said = client.sql(
        "INSERT INTO items VALUES (20, 'a', 1); SELECT * FROM nowhere; INSERT INTO items VALUES (21, 'b', 1)"
    )
    goes_on = sql_system == "postgres"
    assert said["results"] == [{"affected": 1}] * (1 + goes_on)
    assert said["error"].startswith("statement 2")
    assert "nowhere" in said["error"]
    assert client.rows("SELECT id FROM items WHERE id >= 20 ORDER BY id") == ([[20], [21]] if goes_on else [[20]])


@pytest.mark.parametrize("sql_system", ["postgres"], indirect=True)
def test_statements_that_want_a_transaction_of_their_own(client: Client) -> None:
    client.do(
        "CREATE DATABASE one; CREATE DATABASE two; DROP DATABASE one; DROP DATABASE two;",
        "VACUUM items; CREATE INDEX CONCURRENTLY named ON items (name); SELECT 1",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END; SELECT f()",
    )
    assert client.rows("SELECT f()") == [[2]]
    said = client.sql("BEGIN; INSERT INTO items VALUES (30, 'c', 1); SELECT 1/0; SELECT 2; COMMIT")
    first, second = said["error"].split("\n")
    assert first == "statement 3 of 5: ERROR:  division by zero"
    assert second.startswith("statement 4 of 5: ERROR:  current transaction is aborted")
    assert said["messages"] == ["statement 5 of 5: the transaction had failed, and was rolled back"]
    assert client.rows("SELECT id FROM items WHERE id = 30") == []


@pytest.mark.parametrize("query", ["", "   ", ";", "-- nothing", "/* nothing */ ;"])
def test_no_statement_at_all(client: Client, query: str) -> None:
    result = client.call("sql", query=query)
    assert isinstance(json.loads(result.output), dict)
    assert not result.timed_out
    assert client.rows("SELECT 1") == [[1]]


def test_errors_are_worded_as_by_the_system(client: Client, sql_system: str) -> None:
    for query, words, code in ERRORS[sql_system]:
        said = client.sql(query)
        assert words in said["error"], query
        assert said["code"].startswith(code), query


def test_messages(client: Client, sql_system: str) -> None:
    if sql_system in MESSAGES:
        query, message = MESSAGES[sql_system]
        assert client.sql(query)["messages"] == [message]
    assert "messages" not in client.sql("SELECT 1")


def test_max_rows(client: Client, sql_system: str) -> None:
    series = SERIES[sql_system]
    some = client.call("sql", query=series.format(20), max_rows=7)
    assert answered(some) == {"columns": ["n"], "rows": [[n + 1] for n in range(7)], "more": True}
    assert some.truncated
    whole = client.call("sql", query=series.format(7), max_rows=7)
    assert answered(whole) == {"columns": ["n"], "rows": [[n + 1] for n in range(7)]}
    assert not whole.truncated
    by_default = client.sql(series.format(200_000))
    assert (len(by_default["rows"]), by_default["more"]) == (1000, True)


@pytest.mark.parametrize("size", [2_000, 20_000])
def test_long_results_are_cut_and_stay_json(client: Client, sql_system: str, size: int) -> None:
    limits = Limits(output=size)
    small = Client(client.sandbox, client.environment, limits)
    long = TEXT_LITERAL[sql_system](AWKWARD * 30)
    too_much = [
        SERIES[sql_system].format(100_000),
        f"SELECT {long} AS s FROM ({SERIES[sql_system].format(100)}) AS r",
        f"SELECT {TEXT_LITERAL[sql_system]('x' * 50_000)} AS s",
        "; ".join(["SELECT 'some text or other, and more of it, to fill a line of a hundred characters' AS s"] * 300),
        "SELECT " + ", ".join(f"{n} AS a_rather_long_name_{n}" for n in range(1_000)),
    ]
    an_error = f"SELECT * FROM items WHERE {'nowhere_' * 6_000} = 1"  # which not every database system repeats
    for query in (*too_much, an_error):
        result = small.call("sql", query=query, max_rows=100_000)
        assert len(result.output.encode()) <= size, query[:60]
        assert isinstance(json.loads(result.output), dict), query[:60]
        assert result.truncated or query == an_error, query[:60]
    assert small.rows("SELECT 1") == [[1]]


def test_a_long_schema_is_cut_and_stays_json(client: Client) -> None:
    client.do(*(f"CREATE TABLE a_table_with_a_rather_long_name_{n} (a_column_of_it INTEGER)" for n in range(60)))
    small = Client(client.sandbox, client.environment, Limits(output=2_000))
    result = small.call("schema")
    assert len(result.output.encode()) <= 2_000
    assert isinstance(json.loads(result.output), dict)
    assert result.truncated


def table(said: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in said["tables"] if one["name"] == name)
    return found


def test_schema(client: Client) -> None:
    said = answered(client.call("schema"))
    assert said["database"] == "shop"
    assert [one["name"] for one in said["tables"]] == ["items", "orders"]
    items, orders = table(said, "items"), table(said, "orders")
    assert [column["name"] for column in items["columns"]] == ["id", "name", "price"]
    assert [column["nullable"] for column in items["columns"]][1:] == [False, True]
    assert items["primary_key"] == ["id"]
    (key,) = orders["foreign_keys"]
    assert (key["columns"], key["table"], key["references"]) == (["item"], "items", ["id"])
    assert [(one["name"], one["columns"], one["unique"]) for one in orders["indexes"] if one["name"] == "orders_item"]
    assert answered(client.call("schema", table="orders"))["tables"] == [orders]
    assert [one["name"] for one in answered(client.call("schema", database="spare"))["tables"]] == ["parts"]


def test_schema_follows_changes(client: Client) -> None:
    client.do(
        "CREATE TABLE more (id INTEGER PRIMARY KEY, n INTEGER DEFAULT 7)",
        "CREATE VIEW cheap AS SELECT name FROM items WHERE price < 2",
    )
    said = answered(client.call("schema"))
    assert [(one["name"], one["kind"]) for one in said["tables"]] == [
        ("cheap", "view"),
        ("items", "table"),
        ("more", "table"),
        ("orders", "table"),
    ]
    assert table(said, "more")["columns"][1]["default"] == "7"
    client.do("DROP VIEW cheap", "DROP TABLE more")
    assert [one["name"] for one in answered(client.call("schema"))["tables"]] == ["items", "orders"]


def test_schema_of_what_there_is_not(client: Client) -> None:
    for what, named in [("table", "items"), ("database", "spare")]:
        arguments: dict[str, Any] = {what: "nowhere"}
        said = answered(client.call("schema", **arguments))
        assert "nowhere" in said["error"]
        assert named in said["error"], "the error does not say which there are"


def test_another_database_for_one_call(client: Client) -> None:
    assert client.rows("SELECT name FROM parts", database="spare") == [["bolt"]]
    assert client.rows("SELECT name FROM items ORDER BY id", database="shop")[0] == ["apple"]
    assert client.rows("SELECT name FROM items ORDER BY id")[0] == ["apple"]
    assert client.error("SELECT 1", database="nowhere")
    assert client.rows("SELECT COUNT(*) FROM items") == [[3]]


def test_the_databases_of_the_image_are_as_loaded(sql_lab: SqlLab) -> None:
    client = sql_lab.client()
    assert len(DATABASES) == 2
    assert client.rows("SELECT id, name FROM items ORDER BY id") == [[1, "apple"], [2, "pear"], [3, "plum"]]
    assert client.rows("SELECT item, COUNT(*) FROM orders GROUP BY item ORDER BY item") == [[1, 1], [2, 2]]


@pytest.mark.parametrize("sql_system", ["sqlite"], indirect=True)
def test_decimals_are_those_of_the_program_sqlite3(client: Client) -> None:
    texts = ["'1.10'", "'-2.050'", "'1e3'", "'25e-4'", "' +007'", "''", "'1a2.5'", "3", "-0.25", "1e300", "NULL"]
    asked = [f"decimal_{name}({one}, {two})" for name in ("add", "sub", "mul") for one in texts for two in texts[:4]]
    asked += [f"decimal({one})" for one in texts if one not in ("-0.25", "1e300")]  # later versions give all digits
    asked += [f"decimal_cmp({one}, {two})" for one in texts for two in ("'1.11'", "NULL")]
    asked += ["decimal_sum(x) FROM (SELECT '0.1' x UNION ALL SELECT NULL UNION ALL SELECT '99999999999999999999.90')"]
    asked += ["decimal_sum(1) WHERE 0", "decimal_sum(NULL)"]
    script = "".join(f"SELECT {one};\n" for one in asked)
    said = client.call("bash", command=f"sqlite3 :memory: <<'EOF'\n.mode json\n{script}EOF")
    theirs = [next(iter(json.loads(line)[0].values())) for line in said.output.splitlines()]
    theirs = [one.lstrip("-") if isinstance(one, str) and not one.strip("-0.") else one for one in theirs]  # a mistake
    assert [client.rows(f"SELECT {one}")[0][0] for one in asked] == theirs
