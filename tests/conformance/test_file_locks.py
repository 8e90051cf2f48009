"""Locks of fcntl on files that are mapped as well, as SQLite has them in WAL mode: forks have them, too.

The local backend alone: an engine's CRIU has no additions.
"""

from __future__ import annotations

import json

import pytest

from tests.conformance.helpers import Lab, sh
from tests.conformance.jobs import REPORTING, report_of, start
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.protocol import Sandbox

# A service with an open connection to a database, which answers each line that is written to a FIFO.
SERVICE = """
import json, os, sqlite3, sys
db = sqlite3.connect("/tmp/db", isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists t (x text)")
for statement in sys.argv[1:]:
    db.execute(statement).fetchall()
os.mkfifo("/tmp/asked"); os.mkfifo("/tmp/told")
kept = [os.open(f"/tmp/{name}", os.O_RDWR) for name in ("asked", "told")]
asked, told = open("/tmp/asked"), open("/tmp/told", "w")
while True:
    try: answer = db.execute(asked.readline()).fetchall()
    except sqlite3.Error as error: answer = str(error)
    print(json.dumps(answer), file=told, flush=True)
"""
# Another program that uses the database, and does not wait for locks.
OTHER = """
import json, sqlite3, sys
db = sqlite3.connect("/tmp/db", isolation_level=None, timeout=0)
try: answer = db.execute(sys.argv[1]).fetchall()
except sqlite3.Error as error: answer = str(error)
print(json.dumps(answer))
"""
LOCKS = "grep -h POSIX /proc/$!/fdinfo/* | sed 's/.*POSIX//; s/ [0-9]* [^ ]*:/ /' | sort"


def serve(sandbox: Sandbox, *statements: str) -> None:
    sandbox.write_file("/tmp/service.py", SERVICE.encode())
    sandbox.write_file("/tmp/other.py", OTHER.encode())
    quoted = " ".join(f'"{statement}"' for statement in statements)
    sh(sandbox, f"python3 /tmp/service.py {quoted} > /tmp/log 2>&1 & until [ -p /tmp/told ]; do sleep 0.02; done")
    assert ask(sandbox, "select 1") == [[1]]


def ask(sandbox: Sandbox, statement: str) -> object:
    """Has the service execute a statement; returns the rows, or the error."""
    return json.loads(sh(sandbox, f'echo "{statement}" > /tmp/asked; read -r line < /tmp/told; echo "$line"'))


def other(sandbox: Sandbox, statement: str) -> object:
    return json.loads(sh(sandbox, f'python3 /tmp/other.py "{statement}"'))


@pytest.mark.parametrize("last", ["select * from t", "insert into t values ('before')"])
def test_an_idle_connection(local_lab: Lab, last: str) -> None:
    sandbox = local_lab.start()
    serve(sandbox, "insert into t values ('first')", last)
    before = other(sandbox, "select x from t")
    held = sh(sandbox, LOCKS)
    assert "READ" in held
    snapshot = local_lab.checkpoint(sandbox)
    forks = [local_lab.fork(snapshot) for _ in range(2)]
    for one in (*forks, local_lab.fork_of(forks[0]), sandbox):
        assert sh(one, LOCKS) == held
        assert ask(one, "select x from t") == other(one, "select x from t") == before
        assert other(one, "pragma journal_mode=delete") == "database is locked", "somebody else has it open"
        assert ask(one, "insert into t values ('by the service')") == []
        assert other(one, "insert into t values ('by another')") == []
        expected = [*before, ["by the service"], ["by another"]]  # type: ignore[misc]
        assert ask(one, "select x from t") == other(one, "select x from t") == expected
        assert ask(one, "pragma integrity_check") == [["ok"]]
        sh(one, "kill $!; wait")
        assert other(one, "pragma journal_mode=delete") == [["delete"]], "nobody else has it open"
        assert other(one, "select x from t") == expected


def test_in_the_middle_of_a_transaction(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    serve(sandbox, "insert into t values ('first')", "begin immediate", "insert into t values ('mine')")
    fork = local_lab.fork_of(sandbox)
    for one, end, left in ((fork, "commit", [["first"], ["mine"]]), (sandbox, "rollback", [["first"]])):
        assert other(one, "insert into t values ('yours')") == "database is locked"
        assert other(one, "select x from t") == [["first"]]
        assert ask(one, "select x from t") == [["first"], ["mine"]]
        assert ask(one, end) == []
        assert other(one, "select x from t") == left
        assert other(one, "insert into t values ('yours')") == []
        assert ask(one, "select x from t") == [*left, ["yours"]]


def test_a_reader_keeps_what_it_reads(local_lab: Lab) -> None:
    sandbox = local_lab.start()
    serve(sandbox, "insert into t values ('first')", "begin", "select * from t")
    assert other(sandbox, "insert into t values ('later')") == []
    for one in (local_lab.fork_of(sandbox), sandbox):
        assert ask(one, "select x from t") == [["first"]]
        assert ask(one, "commit") == []
        assert ask(one, "select x from t") == [["first"], ["later"]]


def test_locks_of_several_processes_on_one_file(local_lab: Lab) -> None:
    """Read locks in common, and write locks of parts side by side; some have mapped the file, some have not."""
    sandbox = local_lab.start()
    program = """
def hold(n, mapped):
    f = open("/tmp/f", "r+b")
    if mapped: global m; m = mmap.mmap(f.fileno(), 4096)
    fcntl.lockf(f, fcntl.LOCK_SH, 1, 128)
    fcntl.lockf(f, fcntl.LOCK_EX, 10, 10 * n)
    global kept; kept = f
    open(f"/tmp/held{n}", "w").close()
open("/tmp/f", "w+b").truncate(4096)
children = [child(lambda n=n: hold(n, n % 2)) for n in range(1, 5)]
until(lambda: all(os.path.exists(f"/tmp/held{n}") for n in range(1, 5)))
def tell():
    f = open("/tmp/f", "r+b")
    found = []
    for start in (0, 10, 20, 30, 40, 50, 128):
        asked = struct.pack("hhqqixxxx", 1, 0, start, 1, 0)
        kind, _, at, size, pid = struct.unpack("hhqqixxxx", fcntl.fcntl(f, fcntl.F_GETLK, asked))
        found.append((start, kind, at, size, pid if start != 128 else 0))
    return found
"""
    start(sandbox, "locks", f"{program}\ndef report(): return tell()\n{REPORTING}")
    fork = local_lab.fork_of(sandbox)
    told = report_of(sandbox, "locks")
    assert report_of(fork, "locks") == told
    assert told.count("(10, 1, 10, 10, ") == 1
    assert "(0, 2, 0, 1, 0), (10, 1, 10, 10" in told
    assert "(50, 2, 50, 1, 0), (128, 0, 128, 1, 0)" in told


def test_locks_that_criu_would_lose(local_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRIU of the distribution's drops them when it maps the file."""
    monkeypatch.setattr("tvsnap.sandboxes.criu.binary.additions", lambda _: {"owners", "terminals"})
    sandbox = local_lab.start()
    serve(sandbox)
    with pytest.raises(NotCheckpointable, match=r"has locked /tmp/db-shm, which it has mapped too \(fcntl, descriptor"):
        local_lab.checkpoint(sandbox)
