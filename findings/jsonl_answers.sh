#!/usr/bin/env bash
# pandas 3.0.0, pyarrow 21.0.0 and DuckDB 1.4.1: right answers that are texts in a file of JSON lines
#
# Guess: JSON says that they are texts, so they are texts; types are guessed for CSV only.
# Behaviour: a column of texts that all look alike is converted: by pandas, numbers ("007" is 7, "1_000" is 1000, "1.10" is
# 1.1), by pyarrow, dates, by DuckDB, dates, times and UUIDs. One more row with another answer, and all stay texts, so that
# a part of a data set and the whole have other answers.
. "$(dirname "$0")/common.sh"
packages pandas==3.0.0 pyarrow==21.0.0 duckdb==1.4.1

cat >read.py <<'PYTHON'
import json
import duckdb, pandas, pyarrow.json
for answers in (["007", "1.10"], ["007", "1.10", "none"], ["2026-01-31"], ["2026-01-31", "none"], ["12:30"], ["1_000"]):
    with open("data.jsonl", "w") as out:
        out.writelines(json.dumps({"answer": answer}) + "\n" for answer in answers)
    print(*(
        str(read) for read in (
            pandas.read_json("data.jsonl", lines=True)["answer"][0],
            pyarrow.json.read_json("data.jsonl")["answer"].to_pylist()[0],
            duckdb.sql("SELECT answer FROM 'data.jsonl'").fetchall()[0][0],
        )
    ), sep=" | ")
PYTHON
python read.py >out
seen "007 above 1.10: pandas, pyarrow, DuckDB" "$(sed -n 1p out)" "7.0 | 007 | 007"
seen "007 above 1.10 and none" "$(sed -n 2p out)" "007 | 007 | 007"
seen "2026-01-31" "$(sed -n 3p out)" "2026-01-31 | 2026-01-31 00:00:00 | 2026-01-31"
seen "2026-01-31 above none" "$(sed -n 4p out)" "2026-01-31 | 2026-01-31 | 2026-01-31"
seen "12:30" "$(sed -n 5p out)" "12:30 | 12:30 | 12:30:00"
seen "1_000" "$(sed -n 6p out)" "1000 | 1_000 | 1_000"
