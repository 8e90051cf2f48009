#!/usr/bin/env bash
# sqlparse 0.6.1: `split` and `format`, with names that are words of SQL elsewhere
#
# Guess: statements end at semicolons outside of literals and blocks; only keywords change their case; other layout alone leaves the meaning.
# Behaviour: behind a column named `begin`, or an alias `declare` of a view, all the rest is one statement. By keyword_case="upper" a table Data and columns
# count and Level are DATA, COUNT and LEVEL, so that rows have other keys, while `like` stays. identifier_case changes `a b` and [a b], not "a b".
# strip_whitespace joins 'a' and 'b' of two lines, which are one text to PostgreSQL, and an error then. Operators such as #> are cut in two.
. "$(dirname "$0")/common.sh"
packages sqlparse==0.6.1 pglast==8.8

cat >words.py <<'PYTHON'
import sqlite3
import pglast, sqlparse
def valid(statement):
    try:
        pglast.parse_sql(statement)
        return "valid"
    except pglast.parser.ParseError:
        return "not valid"
print(len(sqlparse.split('CREATE TABLE jobs (begin int, "end" int); DELETE FROM jobs; SELECT 1')))
print(*(len(sqlparse.split(f"CREATE VIEW v AS SELECT 1 AS {name}; SELECT 2; SELECT 3")) for name in ("declare", "other")))
query = "select 1 as count, x as Level from Data where x like '1%'"
upper = sqlparse.format(query, keyword_case="upper")
print(upper)
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE Data (x)")
print(*([column[0] for column in database.execute(each).description] for each in (query, upper)))
print(sqlparse.format('SELECT `a b`, [a b], "a b"', identifier_case="upper"))
for before, options in (("SELECT 'a'\n'b'", {"strip_whitespace": True}), ("SELECT tags#>'{a}' FROM t", {"use_space_around_operators": True})):
    after = sqlparse.format(before, **options)
    print(valid(before), after, valid(after))
PYTHON
python words.py >out
seen "statements of three, with a column named begin" "$(sed -n 1p out)" "1"
seen "statements of three, with the alias declare, and with other" "$(sed -n 2p out)" "1 3"
seen "keywords in upper case" "$(sed -n 3p out)" "SELECT 1 AS COUNT, x AS LEVEL FROM DATA WHERE x like '1%'"
seen "names of SQLite's columns, before and then" "$(sed -n 4p out)" "['count', 'Level'] ['COUNT', 'LEVEL']"
seen "identifiers in upper case" "$(sed -n 5p out)" 'SELECT `A B`, [A B], "a b"'
seen "a text of two lines, by strip_whitespace" "$(sed -n 6p out)" "valid SELECT 'a' 'b' not valid"
seen "the operator #>, by use_space_around_operators" "$(sed -n 7p out)" "valid SELECT tags# > '{a}' FROM t not valid"
