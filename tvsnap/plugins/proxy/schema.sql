-- What a model's server answered. Times are seconds since the epoch, durations seconds.

CREATE TABLE answers (
    id           INTEGER PRIMARY KEY,
    key          BLOB NOT NULL UNIQUE, -- digest of the request
    model        TEXT NOT NULL,
    content_type TEXT NOT NULL,
    body         BLOB NOT NULL,        -- compressed by zlib
    lengths      BLOB NOT NULL,        -- of the pieces in which the body came: whole numbers of 4 bytes
    size         INTEGER NOT NULL,     -- of both on disk, with what belongs to them
    ask_s        REAL NOT NULL,        -- how long the server took
    uses         INTEGER NOT NULL,
    created      REAL NOT NULL,
    priority     REAL NOT NULL,        -- the answer with the least is evicted first
    checksum     INTEGER NOT NULL      -- of the body and the lengths
);
CREATE INDEX answers_by_priority ON answers (priority);

-- Of all processes.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value REAL NOT NULL
) WITHOUT ROWID;
