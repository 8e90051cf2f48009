-- The tool-call graph. Hashes are blobs of 32 bytes, times are seconds since the epoch, durations seconds.
-- Text marked "packed" is TEXT, or a BLOB where it was compressed (see rows.py).

CREATE TABLE roots (
    state        BLOB PRIMARY KEY,
    image_name   TEXT NOT NULL,
    image_digest TEXT NOT NULL,
    environment  TEXT NOT NULL,
    limits       TEXT NOT NULL,
    salt         TEXT NOT NULL,
    created      REAL NOT NULL,
    network      TEXT NOT NULL DEFAULT 'none'   -- what its sandboxes may reach, see model/network.py
) WITHOUT ROWID;

-- States form a forest: a state's name is made of its parent's, so exactly one edge leads to it.
CREATE TABLE states (
    hash    BLOB PRIMARY KEY,
    root    BLOB NOT NULL,
    parent  BLOB,             -- NULL for a root
    edge    INTEGER,          -- the edge that leads here from the parent; NULL for a root
    depth   INTEGER NOT NULL,
    private TEXT NOT NULL,    -- why this branch is not shared; empty if it is
    created REAL NOT NULL
) WITHOUT ROWID;

-- The columns that a hit reads come first and the call's text last: behind a long output it costs a hit nothing.
-- Identities are never used twice: a process may still hold one of an edge that another process has deleted.
CREATE TABLE edges (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    state         BLOB NOT NULL,
    call_key      BLOB NOT NULL,
    slot          REAL,             -- what it may answer: 0 any timeout of at least its duration, above 0 exactly
                                    -- that timeout, NULL nothing (NULLs do not collide in a unique index)
    next_state    BLOB,             -- NULL: back to the same state
    timeout       REAL,             -- the call's timeout, where the result depends on it
    exit_code     INTEGER,
    duration      REAL NOT NULL,
    timed_out     INTEGER NOT NULL,
    blocked       INTEGER NOT NULL,
    truncated     INTEGER NOT NULL,
    deterministic INTEGER NOT NULL,
    hits          INTEGER NOT NULL,
    created       REAL NOT NULL,
    reason        TEXT NOT NULL,    -- why it is not shared or not deterministic
    digest        TEXT,             -- of what the call left behind; NULL where that could not be told
    active        TEXT,             -- why next_state may change by itself; NULL where it does not
    refusals      TEXT,             -- JSON: why next_state could not be checkpointed, by backend; NULL where none was
    checksum      INTEGER,          -- of what an answer rests on (see rows.py); NULL where it answers nothing
    proven        INTEGER NOT NULL DEFAULT 0,  -- making the call again leads to the same state
    waited        REAL NOT NULL DEFAULT 0,     -- how long the state had been left to itself; 0 where it does not count
    on_host       INTEGER NOT NULL DEFAULT 0,  -- made in no sandbox
    asked         TEXT,             -- what it asked of the network, a line each; NULL for nothing
    strain        TEXT,             -- why the machine's load may have had a part in the result; NULL: nothing says so
    grade         TEXT,             -- JSON: the grade that it gave; NULL where it is not one that grades
    processor_s   REAL,             -- that executing it took, seconds; NULL where that is not known
    quiet_s       REAL,             -- how long next_state does not change by itself; NULL: it never does
    cost          TEXT,             -- JSON: what executing it cost beyond time, by unit; NULL for nothing
    parts         BLOB,             -- the result's parts (see rows.py); NULL where it is the output alone, as plain text
    output        NOT NULL,         -- packed; the text of the result
    call          NOT NULL,         -- packed; canonical JSON
    earliest      REAL,             -- the shortest and the longest wait after which the call would have found the
    latest        REAL,             -- same; NULL: only the wait itself
    times         BLOB              -- of the files that it changed, compressed JSON; NULL: none, or unknown
);
CREATE UNIQUE INDEX edges_by_call ON edges (state, call_key, slot, waited);

CREATE TABLE snapshots (
    state        BLOB NOT NULL,
    backend      TEXT NOT NULL,
    id           TEXT NOT NULL,
    size         INTEGER NOT NULL,
    files        INTEGER NOT NULL,
    processes    INTEGER NOT NULL,
    shell        INTEGER NOT NULL,
    checkpoint_s REAL NOT NULL,
    fork_s       REAL,
    commands     TEXT NOT NULL,     -- JSON list: what ran in it
    created      REAL NOT NULL,
    last_used    REAL NOT NULL,
    forks        INTEGER NOT NULL,
    pinned       INTEGER NOT NULL DEFAULT 0,   -- asked for by hand: never evicted
    age_s        REAL NOT NULL DEFAULT 0,      -- how long the state had been left to itself when it was taken
    PRIMARY KEY (state, backend)
) WITHOUT ROWID;

CREATE TABLE leases (
    state    BLOB NOT NULL,
    call_key BLOB NOT NULL,
    owner    TEXT NOT NULL,
    taken    REAL NOT NULL,
    PRIMARY KEY (state, call_key)
) WITHOUT ROWID;

-- A task keeps its number for ever, so that a number held in memory stays true.
CREATE TABLE tasks (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE visits (
    edge INTEGER NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (edge, task)
) WITHOUT ROWID;
CREATE INDEX visits_by_task ON visits (task, edge);

-- Numbered in the order in which they began.
CREATE TABLE rollouts (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    task     TEXT NOT NULL,
    label    TEXT NOT NULL,
    image    TEXT NOT NULL,
    root     BLOB NOT NULL,
    owner    TEXT NOT NULL,
    started  REAL NOT NULL,
    finished REAL,
    state    BLOB NOT NULL,     -- where it ended; its root until then
    epoch    INTEGER,           -- of its training run; NULL for none
    reward   REAL,              -- the latest that was recorded; NULL for none
    outcome  TEXT,              -- the error that ended it; NULL where none did
    start    BLOB NOT NULL      -- the state at which it began
);
CREATE INDEX rollouts_by_task ON rollouts (task, root);
CREATE INDEX rollouts_by_root ON rollouts (root, task);
CREATE INDEX rollouts_by_label ON rollouts (label);
CREATE INDEX rollouts_unfinished ON rollouts (owner) WHERE finished IS NULL;

-- The calls of each rollout, in order, also where they changed nothing.
CREATE TABLE steps (
    rollout     INTEGER NOT NULL,   -- its number
    place       INTEGER NOT NULL,   -- from 1 on
    edge        INTEGER,            -- what the call is recorded as; NULL where it is not
    source      INTEGER NOT NULL,   -- where its result came from: an index of STEP_SOURCES in model.py
    ended       REAL NOT NULL,
    seconds     REAL NOT NULL,      -- for which its caller waited
    duration    REAL NOT NULL,      -- that it took where it was executed
    processor_s REAL,               -- of processor time that it took there; NULL where that is not known
    exit_code   INTEGER,
    timed_out   INTEGER NOT NULL,
    note        TEXT,               -- why it was executed, or what failed; NULL where it was answered
    call,                           -- packed; canonical JSON; NULL where the edge has it
    PRIMARY KEY (rollout, place)
) WITHOUT ROWID;

CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value REAL NOT NULL
) WITHOUT ROWID;
