#!/usr/bin/env bash
# ibis-framework 12.0.0 with DuckDB 1.4.1, sqlite3 of Python 3.11.7 and polars 2.1.0: one expression on three backends
#
# Guess: the same result, as Ibis hides how they differ (as it does for n / 2 and n // 2 of whole numbers); or an error where it cannot.
# Behaviour: 2.5 is rounded to 3 or 2, 1.5 as int64 is 2 or 1, -7 % 3 is -1 or 2, a text of two letters has 2 or 3, as polars counts
# bytes; with polars `replace` replaces the first place alone, and `nunique` counts a missing value; the sum of no rows is missing, but `any`
# of none is False there. A number that is too large is an error of DuckDB, and another number with the others; SQLite takes "12 lines" for 12.
. "$(dirname "$0")/common.sh"
packages ibis-framework==12.0.0 sqlglot==27.29.0 duckdb==1.4.1 polars==2.1.0 pyarrow==26.0.1 pyarrow-hotfix==0.7 pandas==3.1.1 numpy==2.4.6 rich==14.2.0 packaging==25.0

cat >ask.py <<'PYTHON'
import ibis
import pyarrow as pa
rows = pa.table({"n": [7, -7], "x": [2.5, 1.5], "seen": [1, None], "name": ["äb", "aa"], "ok": [True, True]})
backends = [ibis.duckdb.connect(), ibis.sqlite.connect(), ibis.polars.connect()]
for backend in backends:
    backend.create_table("rows", rows)
def ask(question):
    answers = []
    for backend in backends:
        try:
            answer = backend.to_pyarrow(question(backend.table("rows")).name("answer"))
            answers.append(answer.to_pylist() if hasattr(answer, "to_pylist") else answer.as_py())
        except Exception as error:
            answers.append(type(error).__name__)
    print(*answers, sep="; ")
ask(lambda t: t.n / 2)
ask(lambda t: t.n // 2)
ask(lambda t: t.n % 3)
ask(lambda t: t.x.round())
ask(lambda t: t.x.cast("int64"))
ask(lambda t: t.name.length())
ask(lambda t: t.name.replace("a", ""))
ask(lambda t: t.seen.nunique())
ask(lambda t: t.filter(t.n > 100).ok.any())
ask(lambda t: t.n * 2**62)
ask(lambda t: ibis.literal("12 lines").cast("int64"))
ask(lambda t: ibis.literal(float("nan")) == ibis.literal(float("nan")))
PYTHON
python ask.py 2>errors >out || { cat errors >&2; exit 2; }
line=0
answers() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
answers "7 and -7: n / 2, by DuckDB, SQLite and polars" "[3.5, -3.5]; [3.5, -3.5]; [3.5, -3.5]"
answers "n // 2" "[3, -4]; [3, -4]; [3, -4]"
answers "n % 3" "[1, -1]; [1, -1]; [1, 2]"
answers "2.5 and 1.5, rounded" "[3, 2]; [3, 2]; [2, 2]"
answers "as int64" "[2, 2]; [2, 1]; [2, 1]"
answers "length of äb and aa" "[2, 2]; [2, 2]; [3, 2]"
answers "replace of a" "['äb', '']; ['äb', '']; ['äb', 'a']"
answers "nunique of 1 and a missing value" "1; 1; 2"
answers "any of no rows" "None; None; False"
answers "n * 2**62" "OutOfRangeException; [-9223372036854775808, -9223372036854775808]; [-4611686018427387904, 4611686018427387904]"
answers "12 lines as int64" "ConversionException; 12; InvalidOperationError"
answers "NaN == NaN" "True; None; True"
