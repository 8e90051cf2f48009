"""The file of the graph: its format, and the migrations from earlier versions."""

from __future__ import annotations

from pathlib import Path

from tvsnap.graph.rows import EdgeRow, checksum
from tvsnap.host.database import Format

VERSION = 9
APPLICATION_ID = 0x74767370  # "tvsp"

_MIGRATIONS = {
    # Version 1 had no checksums.
    1: """
ALTER TABLE edges ADD COLUMN checksum INTEGER;
UPDATE edges SET checksum = edge_checksum(state, call_key, slot, 0.0, next_state, timeout, exit_code, duration,
    timed_out, blocked, truncated, NULL, output, call, NULL) WHERE deterministic AND slot IS NOT NULL;
""",
    # In a file of version 2, nothing was proven, and time did not count. States with a snapshot go on answering; calls
    # to others are executed once more. Private states had snapshots only if someone asked for them.
    2: """
ALTER TABLE edges ADD COLUMN proven INTEGER NOT NULL DEFAULT 0;
ALTER TABLE edges ADD COLUMN waited REAL NOT NULL DEFAULT 0;
ALTER TABLE edges ADD COLUMN quiet_s REAL;
ALTER TABLE snapshots ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN age_s REAL NOT NULL DEFAULT 0;
UPDATE snapshots SET pinned = state IN (SELECT hash FROM states WHERE private <> '');
DROP INDEX edges_by_call;
CREATE UNIQUE INDEX edges_by_call ON edges (state, call_key, slot, waited);
""",
    # In version 3, results consisted of text alone, and facts were kept as one object.
    3: """
ALTER TABLE edges ADD COLUMN digest TEXT;
ALTER TABLE edges ADD COLUMN active TEXT;
ALTER TABLE edges ADD COLUMN refusals TEXT;
ALTER TABLE edges ADD COLUMN cost TEXT;
ALTER TABLE edges ADD COLUMN parts BLOB;
ALTER TABLE edges ADD COLUMN on_host INTEGER NOT NULL DEFAULT 0;
UPDATE edges SET digest = json_extract(extra, '$.digest'), active = json_extract(extra, '$.active'),
    refusals = json_extract(extra, '$.not_checkpointable') WHERE json_valid(extra);
ALTER TABLE edges DROP COLUMN extra;
""",
    # In version 4, no sandbox had a network.
    4: """
ALTER TABLE edges ADD COLUMN asked TEXT;
ALTER TABLE roots ADD COLUMN network TEXT NOT NULL DEFAULT 'none';
""",
    # In version 5, results had no note on the machine's load, and grades were ordinary calls.
    5: """
ALTER TABLE edges ADD COLUMN strain TEXT;
ALTER TABLE edges ADD COLUMN grade TEXT;
""",
    # In version 6, rollouts had neither rewards nor epochs, and their calls were not recorded in order.
    6: """
ALTER TABLE edges ADD COLUMN processor_s REAL;
CREATE TABLE numbered (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    task     TEXT NOT NULL,
    label    TEXT NOT NULL,
    image    TEXT NOT NULL,
    root     BLOB NOT NULL,
    owner    TEXT NOT NULL,
    started  REAL NOT NULL,
    finished REAL,
    state    BLOB NOT NULL,
    epoch    INTEGER,
    reward   REAL,
    outcome  TEXT,
    start    BLOB NOT NULL
);
INSERT INTO numbered (id, task, label, image, root, owner, started, finished, state, start)
SELECT id, task, label, image, root, owner, started, finished, state, root FROM rollouts ORDER BY started;
DROP TABLE rollouts;
ALTER TABLE numbered RENAME TO rollouts;
CREATE INDEX rollouts_by_task ON rollouts (task, root);
CREATE INDEX rollouts_by_root ON rollouts (root, task);
CREATE INDEX rollouts_by_label ON rollouts (label);
CREATE INDEX rollouts_unfinished ON rollouts (owner) WHERE finished IS NULL;
CREATE TABLE steps (
    rollout     INTEGER NOT NULL,
    place       INTEGER NOT NULL,
    edge        INTEGER,
    source      INTEGER NOT NULL,
    ended       REAL NOT NULL,
    seconds     REAL NOT NULL,
    duration    REAL NOT NULL,
    processor_s REAL,
    exit_code   INTEGER,
    timed_out   INTEGER NOT NULL,
    note        TEXT,
    call,
    PRIMARY KEY (rollout, place)
) WITHOUT ROWID;
""",
    # In version 7, the times of files were not recorded. States with a snapshot go on answering; calls to others are
    # executed once more.
    7: """
ALTER TABLE edges ADD COLUMN times BLOB;
UPDATE edges SET proven = 0 WHERE digest IS NOT NULL;
""",
    # In version 8, it was not known for how long a state had stood still before a call, and would.
    8: """
ALTER TABLE edges ADD COLUMN earliest REAL;
ALTER TABLE edges ADD COLUMN latest REAL;
""",
}

# All that an answer depends on but the calls that are inserted; private calls answer nobody.
_ALTERATIONS = (
    f"UPDATE OF {', '.join(EdgeRow._fields)} ON edges WHEN old.slot IS NOT NULL",
    "DELETE ON edges WHEN old.slot IS NOT NULL",
    "UPDATE ON states",
    "DELETE ON states",
    "DELETE ON roots",
    "DELETE ON snapshots",
)

FORMAT = Format(
    Path(__file__).with_name("schema.sql"),
    APPLICATION_ID,
    VERSION,
    kind="tool-call graph",
    begin_anew="with an empty graph (its calls are executed anew)",
    elsewhere="set TVSNAP_HOME elsewhere",
    room=(
        "free some: tvsnap gc --packages --keep-bytes 0, or tvsnap forget (they need a few MiB themselves, which "
        "tvsnap keeps in reserve: if that is not enough, remove something else)"
    ),
    cache_kib=32 * 1024,
    migrations=_MIGRATIONS,
    functions={"edge_checksum": checksum},
    alterations=_ALTERATIONS,
)
