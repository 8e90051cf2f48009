"""Queries that have the client's command DELIMITER are cut as the client of MariaDB would."""

from __future__ import annotations

import pytest

from tvsnap.plugins.sql.inside.mariadb.scripts import requests


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1; SELECT 2",
        "CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END",
        "SELECT 'delimiter' AS a",
        "SELECT delimiter FROM t",
        "",
        "DELIMITER //\nSELECT 'open",
    ],
)
def test_the_server_cuts_what_has_no_such_command(query: str) -> None:
    assert requests(query) == [query]


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("DELIMITER //\nCREATE PROCEDURE p() BEGIN SELECT 1; END//\nDELIMITER ;\nCALL p();\n",
         ["CREATE PROCEDURE p() BEGIN SELECT 1; END", "CALL p()"]),
        ("SELECT 1; SELECT 2;\ndelimiter $$\nSELECT 3 $$ SELECT 4\n$$\nDelimiter ;\nSELECT 5",
         ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4", "SELECT 5"]),
        ("DELIMITER //\nSELECT '//', \"a//b\", `c//`, /* // */ 1 -- //\n//\nSELECT é//",
         ["SELECT '//', \"a//b\", `c//`, /* // */ 1 -- //", "SELECT é"]),
        ("DELIMITER //", []),
    ],
)  # fmt: skip
def test_scripts_that_have_it(query: str, sent: list[str]) -> None:
    assert requests(query) == sent
