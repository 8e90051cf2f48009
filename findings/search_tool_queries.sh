#!/usr/bin/env bash
# tantivy 0.27.0, Whoosh 2.7.4, SQLite's FTS5 with Python: a model's words as the query of a search tool over its notes
#
# Guess: what has the words is found, by all three; punctuation does not matter.
# Behaviour: tantivy finds what has one of the words, the others what has all. "it's" and "error: utils" are errors for tantivy and FTS5, "C++" and "utils.py" for
# FTS5; Whoosh finds nothing for "C++", nor "utils" in utils.py. "-read file" leaves out for tantivy, and is a word for Whoosh. te?ts is a pattern for Whoosh
# alone, and 4* not for tantivy.
. "$(dirname "$0")/common.sh"
packages tantivy==0.27.0 whoosh==2.7.4

cat >search.py <<'PYTHON'
import os, sqlite3
import tantivy
from whoosh import fields, index, qparser
notes = ("def read_file(path)", "the error is in utils.py, line 42", "code in C++", "tests failed", "read the file")
builder = tantivy.SchemaBuilder()
builder.add_integer_field("row", stored=True)
builder.add_text_field("body")
first = tantivy.Index(builder.build())
writer = first.writer()
os.mkdir("whoosh")
second = index.create_in("whoosh", fields.Schema(row=fields.STORED, body=fields.TEXT))
other = second.writer()
third = sqlite3.connect(":memory:")
third.execute("CREATE VIRTUAL TABLE notes USING fts5(body)")
for row, text in enumerate(notes, 1):
    writer.add_document(tantivy.Document(row=row, body=text))
    other.add_document(row=row, body=text)
    third.execute("INSERT INTO notes VALUES (?)", [text])
writer.commit()
other.commit()
first.reload()
def by_tantivy(query):
    searcher = first.searcher()
    return [searcher.doc(where)["row"][0] for _, where in searcher.search(first.parse_query(query, ["body"])).hits]
def by_whoosh(query):
    return [hit["row"] for hit in second.searcher().search(qparser.QueryParser("body", second.schema).parse(query))]
def by_sqlite(query):
    return [row for row, in third.execute("SELECT rowid FROM notes WHERE notes MATCH ?", [query])]
def found(search, query):
    try:
        return ",".join(map(str, sorted(search(query)))) or "-"
    except (ValueError, sqlite3.OperationalError):
        return "error"
for query in ("failed tests", "failed file", "it's", "error: utils", "read_file(", "C++", "utils", "utils.py", "-read file", "not read", "42", "4*", "te?ts", "the"):
    print(*(found(search, query) for search in (by_tantivy, by_whoosh, by_sqlite)))
PYTHON
python -W ignore search.py >out
python -c 'import sqlite3; print("SQLite", sqlite3.sqlite_version)'
line=0
found() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
echo "rows by tantivy, Whoosh, FTS5:"
found "failed tests" "4 4 4"
found "failed file" "1,4,5 - -"
found "it's" "error - error"
found "error: utils" "error - error"
found "read_file(" "error 1 error"
found "C++" "3 - error"
found "utils" "2 - 2"
found "utils.py" "2 2 error"
found "-read file" "- 5 error"
found "not read" "1,5 5 -"
found "42" "2 2 2"
found "4*" "- 2 2"
found "te?ts" "- 4 error"
found "the" "2,5 - 2,5"
