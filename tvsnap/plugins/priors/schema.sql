-- What a language model proposed. Times are seconds since the epoch, durations seconds, divergences nats.

-- What was asked for, without the state: the goal, and the admissible actions.
CREATE TABLE questions (
    id      INTEGER PRIMARY KEY,
    goal    TEXT NOT NULL,
    actions BLOB NOT NULL,          -- digest of the sorted names
    UNIQUE (goal, actions)
);

-- Identities are never used twice and grow with time: an index in memory learns of new rows by them.
CREATE TABLE entries (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    question      INTEGER NOT NULL REFERENCES questions,
    state         BLOB NOT NULL,     -- digest of the state's hash, or of the text of its abstraction
    embedder      TEXT,              -- whose vector it is; NULL where the entry is found by its digest alone
    vector        BLOB,              -- of length 1, as half-precision numbers
    probabilities BLOB NOT NULL,     -- double-precision numbers, in the order of the sorted names
    ask_s         REAL NOT NULL,     -- how long the model took
    uses          INTEGER NOT NULL,  -- how often it has answered
    refreshes     INTEGER NOT NULL,  -- how often its answer was compared with a new one
    error         REAL,              -- mean Jensen-Shannon divergence of these comparisons; NULL without any
    answered      REAL NOT NULL,     -- when the model gave this answer
    revision      INTEGER NOT NULL,  -- how often the answer was replaced
    priority      REAL NOT NULL,     -- the entry with the least is evicted first
    checksum      INTEGER NOT NULL   -- of what an answer rests on
);
CREATE UNIQUE INDEX entries_by_state ON entries (question, state);
CREATE INDEX entries_by_embedder ON entries (question, embedder, id) WHERE embedder IS NOT NULL;
CREATE INDEX entries_by_priority ON entries (priority);

-- Of all processes.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value REAL NOT NULL
) WITHOUT ROWID;
