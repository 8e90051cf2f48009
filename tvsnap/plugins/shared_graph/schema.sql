-- What hosts tell each other. Its rows may be deleted at any time: each host has its own copy of what it uses.

CREATE SCHEMA tvsnap;

CREATE TABLE tvsnap.about (
    id      text NOT NULL,              -- tells this database from one that was made anew at its address
    version integer NOT NULL
);

-- Calls that answer others, by what an answer is found by. A state's name tells what is in it, so that calls from
-- different hosts fit together without anything else.
CREATE TABLE tvsnap.calls (
    state         bytea NOT NULL,
    call_key      bytea NOT NULL,
    slot          double precision NOT NULL,    -- these as in the file of a host, see tvsnap/graph/schema.sql
    waited        double precision NOT NULL,
    next_state    bytea,
    digest        text,
    created       double precision NOT NULL,
    deterministic boolean NOT NULL,
    proven        boolean NOT NULL,
    reason        text NOT NULL,
    ages          boolean NOT NULL,     -- it depends on what is outside: a later execution takes its place
    refuted       boolean NOT NULL DEFAULT false,   -- another execution left something else: it is never proven
    changed       xid8,                 -- the latest transaction that changed it after it was made; NULL for none
    record        bytea NOT NULL,       -- the whole row of the host's file, compressed JSON
    PRIMARY KEY (state, call_key, slot, waited)
);
CREATE INDEX calls_changed ON tvsnap.calls (changed) WHERE changed IS NOT NULL;

-- Who executes what at present. Nothing is lost with these when the database's machine stops.
CREATE UNLOGGED TABLE tvsnap.sessions (
    id   text PRIMARY KEY,
    host text NOT NULL,
    seen timestamptz NOT NULL           -- when it last showed that it is alive
);
CREATE UNLOGGED TABLE tvsnap.leases (
    state    bytea NOT NULL,
    call_key bytea NOT NULL,
    session  text NOT NULL,
    taken    timestamptz NOT NULL,
    PRIMARY KEY (state, call_key)
);
CREATE INDEX leases_by_session ON tvsnap.leases (session);
