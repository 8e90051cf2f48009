"""Finds the definitions in a PostgreSQL database that depend on chance, the clock or the server's activity.

A view, a default, a constraint, a rule or a policy is stored in the catalog as a tree that names each function by its
number, and the system says of a function whether its value may vary. The bodies of trigger functions and other
functions of the agent are not analysed: unless declared IMMUTABLE, they may do anything. So may an aggregate of such
functions, a function with an argument whose default is computed, and a foreign table.
"""

from __future__ import annotations

from typing import Callable, FrozenSet, List, Optional, Set, Tuple

from ..dialects import DIALECTS, POSTGRES_TIMELESS
from ..reach import ENDS, NONE, Definitions, closed

Ask = Callable[[str], List[List[Optional[str]]]]

_OWN = 16384
"""The first number of objects that are not the database system's own."""

_CATALOGS = (
    *("proc", "rewrite", "trigger", "attrdef", "constraint", "policy", "cast", "operator", "type", "class"),
    *("amproc", "event_trigger"),
)
_VERSIONS = " || ';' || ".join(
    "coalesce((SELECT pg_catalog.string_agg(oid || ':' || xmin, ',') "
    f"FROM pg_catalog.pg_{name} WHERE oid >= {_OWN}), '')"
    for name in _CATALOGS
)
_INHERITS = (
    "coalesce((SELECT pg_catalog.string_agg(inhrelid || ' ' || inhparent, ',') FROM pg_catalog.pg_inherits), '')"
)
_VERSION = f"SELECT pg_catalog.md5({_VERSIONS} || ';' || {_INHERITS})"

# Functions, of those that are not immutable, whose value may vary although the state is the same. Sequences are not
# among them, because their values are observed.
_RESTLESS = """(p.provolatile = 'v' AND p.proname NOT IN ('nextval', 'currval', 'lastval', 'setval')
    OR p.proname ~ ('^(now|(transaction|statement)_timestamp|age|mxid_age|inet_.*|.*txid.*|.*_to_xml.*|ts_stat'
    '|pg_(stat|statio|control|current|last|xact|cursor|prepared|lock|blocking|safe|timezone|hba|ls|read)_?.*'
    '|pg_(backend_pid|conf_load_time|postmaster_start_time|shmem_allocations)'
    '|pg_get_(shmem|backend_mem|replication|publication|wal).*|pg_(database|tablespace)_size'
    '|timezone|timetz|jsonb_path_.*_tz|jsonb?_(populate|to)_record(set)?|.*_(in|recv))$'))"""
_DOUBTFUL = """(p.provolatile <> 'i'
    OR p.proargdefaults IS NOT NULL AND p.proargdefaults::text ~ '\\{(?!CONST |RELABELTYPE )'
    OR EXISTS (SELECT FROM pg_catalog.pg_aggregate a WHERE a.aggfnoid = p.oid AND (
        agginitval IS NOT NULL AND agginitval ~* 'now|today|tomorrow|yesterday'
        OR EXISTS (SELECT FROM pg_catalog.pg_proc q WHERE q.provolatile <> 'i' AND q.oid IN (
            aggtransfn, aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn, aggmtransfn, aggminvtransfn, aggmfinalfn)
        ))))"""
"""Whether a function of the agent may do anything."""
_TIMELESS = ", ".join(f"'{name}'" for name in sorted(POSTGRES_TIMELESS))
_ZONED = "(1266, 1270)"
"""Times of day with a zone, and arrays of them: without an explicit zone, today's is used."""
_AT_WORK = "^pg_(stat|statio|locks|cursors|prepared|timezone|shmem|backend_memory|replication|hba|file_settings|wal)"
"""Views of the database system that show the server's activity."""

_TREES = f"""
    SELECT CASE ev_type WHEN '1' THEN 'r' ELSE 'w' END AS what, ev_class AS relation,
        pg_catalog.concat(ev_action, ev_qual) AS tree FROM pg_catalog.pg_rewrite WHERE oid >= {_OWN}
    UNION ALL SELECT 'w', adrelid, adbin::text FROM pg_catalog.pg_attrdef WHERE oid >= {_OWN}
    UNION ALL SELECT CASE WHEN conrelid = 0 THEN 'a' ELSE 'w' END, conrelid, conbin::text
        FROM pg_catalog.pg_constraint WHERE conbin IS NOT NULL AND oid >= {_OWN}
    UNION ALL SELECT 'a', 0, typdefaultbin::text
        FROM pg_catalog.pg_type WHERE typdefaultbin IS NOT NULL AND oid >= {_OWN}
    UNION ALL SELECT 'r', polrelid, pg_catalog.concat(polqual, polwithcheck) FROM pg_catalog.pg_policy
    UNION ALL SELECT 'w', tgrelid, tgqual::text FROM pg_catalog.pg_trigger WHERE tgqual IS NOT NULL AND oid >= {_OWN}"""

_ALL = f"""
WITH trees AS ({_TREES}),
called AS (SELECT DISTINCT what, relation, found[1]::oid AS oid FROM trees,
    pg_catalog.regexp_matches(tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\\d+)', 'g') AS found)
SELECT what, relation, CASE WHEN c.oid >= {_OWN} THEN 'runs' ELSE 'chance' END, NULL FROM called c
    JOIN pg_catalog.pg_proc p ON p.oid = c.oid
    WHERE CASE WHEN c.oid >= {_OWN} THEN {_DOUBTFUL} ELSE p.provolatile <> 'i' AND {_RESTLESS} END
UNION ALL SELECT what, relation, 'chance', NULL FROM trees
    WHERE tree ~ 'SQLVALUEFUNCTION :op [0-8] |TABLESAMPLECLAUSE|TABLEFUNC '
UNION ALL SELECT DISTINCT what, relation, 'chance', NULL FROM trees,
    pg_catalog.regexp_matches(tree, ':resulttype (\\d+) :resultcollid', 'g') AS found
    JOIN pg_catalog.pg_type t ON t.oid = found[1]::oid
    WHERE t.typtype <> 'e' AND NOT (t.oid < {_OWN} AND pg_catalog.ltrim(t.typname, '_') IN ({_TIMELESS}))
UNION ALL SELECT what, attrelid, 'chance', NULL FROM pg_catalog.pg_attribute,
    pg_catalog.unnest(ARRAY['r', 'w']) AS what WHERE attrelid >= {_OWN} AND atttypid IN (
        SELECT oid FROM pg_catalog.pg_type WHERE oid IN {_ZONED} OR typbasetype IN {_ZONED})
UNION ALL SELECT what, oid, 'runs', NULL FROM pg_catalog.pg_class,
    pg_catalog.unnest(ARRAY['r', 'w']) AS what WHERE relkind = 'f'
UNION ALL SELECT DISTINCT what, relation, 'on', found[1] FROM trees,
    pg_catalog.regexp_matches(tree, ':relid (\\d+)', 'g') AS found WHERE found[1] <> relation::text
UNION ALL SELECT 'w', confrelid, 'on', conrelid::text FROM pg_catalog.pg_constraint
    WHERE contype = 'f' AND (confupdtype IN ('c', 'n', 'd') OR confdeltype IN ('c', 'n', 'd'))
UNION ALL SELECT 'w', inhparent, 'on', inhrelid::text FROM pg_catalog.pg_inherits
UNION ALL SELECT 'r', inhparent, 'on', inhrelid::text FROM pg_catalog.pg_inherits
UNION ALL SELECT 'w', tgrelid, 'runs', CASE WHEN tgdeferrable THEN 'deferred' END
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = tgfoid
    WHERE NOT tgisinternal AND p.oid >= {_OWN} AND p.provolatile <> 'i'
UNION ALL SELECT 'w', indrelid, 'chance', NULL FROM pg_catalog.pg_index
    JOIN pg_catalog.pg_class c ON c.oid = indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
    WHERE indrelid >= {_OWN} AND amname IN ('gist', 'spgist')
UNION ALL SELECT 'a', 0, 'runs', NULL FROM pg_catalog.pg_cast
    WHERE oid >= {_OWN} AND castmethod = 'i' AND castsource NOT IN (
        SELECT oid FROM pg_catalog.pg_type WHERE oid < {_OWN} AND typname = 'bool')
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = casttarget AND (t.typtype = 'e'
        OR t.oid < {_OWN} AND pg_catalog.ltrim(t.typname, '_') IN ({_TIMELESS})))
UNION ALL SELECT 'a', 0, 'runs', NULL FROM pg_catalog.pg_proc p WHERE p.oid >= {_OWN} AND {_DOUBTFUL} AND (
    EXISTS (SELECT FROM pg_catalog.pg_cast WHERE castfunc = p.oid)
    OR (p.provolatile = 'v' OR NOT EXISTS (SELECT FROM pg_catalog.pg_depend
        WHERE classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND objid = p.oid AND deptype = 'e')) AND (
        EXISTS (SELECT FROM pg_catalog.pg_operator o WHERE o.oid >= {_OWN} AND p.oid IN (oprcode, oprrest, oprjoin))
        OR EXISTS (SELECT FROM pg_catalog.pg_amproc WHERE amproc = p.oid)
        OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE p.oid IN (typinput, typoutput, typreceive, typsend, typmodin)))
    OR EXISTS (SELECT FROM pg_catalog.pg_event_trigger WHERE evtfoid = p.oid))
UNION ALL SELECT 'n', oid, NULL, relname FROM pg_catalog.pg_class
    WHERE oid >= {_OWN} AND relkind IN ('r', 'v', 'm', 'p', 'f')
UNION ALL SELECT 'r', oid, 'chance', relname FROM pg_catalog.pg_class
    WHERE oid < {_OWN} AND relkind = 'v' AND relname ~ '{_AT_WORK}'
UNION ALL SELECT 'r', oid, 'swept', NULL FROM pg_catalog.pg_class
    WHERE relnamespace = pg_catalog.pg_my_temp_schema() AND relkind IN ('r', 'p', 'm')
UNION ALL SELECT 'f', oid, CASE WHEN NOT {_DOUBTFUL} THEN 'pure' WHEN EXISTS (SELECT FROM pg_catalog.pg_type t
        WHERE t.oid = p.proargtypes[0] AND (t.typtype = 'c' OR t.typbasetype <> 0)) THEN 'column'
        WHEN prolang = (SELECT oid FROM pg_catalog.pg_language WHERE lanname = 'c') AND EXISTS (
            SELECT FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
            AND objid = p.oid AND deptype = 'e') THEN 'program'
    END, proname
    FROM pg_catalog.pg_proc p WHERE oid >= {_OWN}
UNION ALL SELECT 's', 0, NULL, NULL WHERE EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid >= {_OWN}
    AND (prosrc ~* 'setseed' OR pg_catalog.pg_get_function_sqlbody(oid) ~* 'setseed'))"""


class Definers:
    """The definitions of one database, read again when its catalog has changed.

    Attributes:
        known: the definitions; None before the first look.
        at: the position of the last look, for the caller.
    """

    def __init__(self) -> None:
        self._version = ""
        self.known: Optional[Definitions] = None
        self.at: Optional[Tuple[object, ...]] = None

    def look(self, ask: Ask) -> None:
        """Reads the present definitions with a function that returns the rows of a query; raises StatementFailed."""
        version = ask(_VERSION)[0][0] or ""
        if self.known is None or version != self._version:
            self.known = _definitions(ask(_ALL))
            self._version = version


def _definitions(rows: List[List[Optional[str]]]) -> Definitions:
    facts = [tuple(value or "" for value in row) for row in rows]
    names = {relation: name.lower() for what, relation, _, name in facts if what == "n"}
    functions = [(name.lower(), how) for what, _, how, name in facts if what == "f"]
    chance = DIALECTS["postgres"].chance
    impure = {name for name, how in functions if how != "pure" and not (how == "program" and name in chance)}
    edges = {way: [(on, of) for what, on, how, of in facts if what == way and how == "on"] for way in "rw"}

    def named(kinds: Set[Tuple[str, str]], *ways: str) -> FrozenSet[str]:
        """Returns the names of relations with such a fact, and of those that depend on them."""
        met = {relation for what, relation, how, _ in facts if (what, how) in kinds}
        numbers = closed(met, [edge for way in ways for edge in edges[way]])
        return frozenset(names[number] for number in numbers if number in names)

    return Definitions(
        reads=named({("r", "chance")}, "r"),
        runs=named({("r", "runs")}, "r") | {name for name, how in functions if how == "column"},
        swept=named({("r", "swept")}, "r"),
        writes=named({("w", "chance"), ("w", "runs")}, "w", "r")
        | (ENDS if any(what == "w" and word == "deferred" for what, _, _, word in facts) else NONE),
        pure=frozenset(name for name, _ in functions) - impure,
        impure=frozenset(impure),
        everything=any(what == "a" for what, *_ in facts),
        seeds=any(what == "s" for what, *_ in facts),
    )
