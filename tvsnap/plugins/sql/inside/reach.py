"""Parts of a database that a statement may use besides its words, and that depend on chance or the clock.

They are views, defaults, triggers and functions.

The host says which names a statement contains (`Words`), a database system which of those depend on chance
(`Definitions`). A name counts wherever it stands: if a column has the same name as a view, that costs a snapshot at
most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterable, Optional, Set, Tuple

NONE: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class Words:
    """The names in a request.

    Attributes:
        names: all names and words in it, in lower case; None if they are not known.
        calls: functions among those that are not known to be the database system's own and independent of chance.
        called: all that stand where a function's name may stand.
        defined: names that it creates or alters, if they may depend on chance.
        made: names that it creates or alters.
        timed: what it creates or alters may hold a time of day, or a time that is set where nothing is written.
        defines: it creates or alters something.
        executes: it may execute something that its words do not show, or draws a salt, or records the time.
        unseen: it may define something that its words do not show.
        plain: it changes rows, or tables and the like, and nothing in its words depends on chance.
    """

    names: Optional[FrozenSet[str]] = NONE
    calls: FrozenSet[str] = NONE
    called: FrozenSet[str] = NONE
    defined: FrozenSet[str] = NONE
    made: FrozenSet[str] = NONE
    timed: bool = False
    defines: bool = False
    executes: bool = False
    unseen: bool = False
    plain: bool = False

    @classmethod
    def of(cls, request: Dict[str, Any]) -> Words:
        """Converts them from the JSON of a request."""
        sets: Dict[str, Any] = {name: frozenset(value) for name, value in request.items() if isinstance(value, list)}
        return cls(**{**request, **sets})

    def said(self) -> Dict[str, Any]:
        """Converts them to the JSON of a request."""
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in vars(self).items()}


ENDS = frozenset({"commit", "end", "constraints"})
"""Words of the statements at which deferred triggers are run."""
ANY = "*"
"""Stands for all names: an operator or a cast is executed although no statement names it."""
_STIRRING = frozenset({"update", "delete", "merge"})

UNKNOWN = Words(names=None, executes=True, unseen=True)


@dataclass(frozen=True)
class Definitions:
    """Which names stand for something that depends on chance, the clock, or anything else that is not in a state.

    Attributes:
        reads: names whose reading depends on it.
        runs: names whose reading runs functions with unknown effects; including functions that may be called as a
            column is read.
        swept: names whose reading also cleans up, and so decides where later rows are put.
        writes: names whose writing depends on it: by a default, a trigger, a rule, a constraint, a dependent table.
        timed: names of which a value may be written differently each day or second, though reading it does not differ:
            a time of day that is converted to a date and time is today's.
        pure: user-defined functions that do not depend on chance.
        impure: functions that may do anything, even if one of the database system's own has the same name.
        everything: any statement may depend on it, because of an operator or a cast.
        seeds: a function may set the seed of the session's random numbers.
        complete: nothing is defined besides what is listed here.
        version: changes whenever something may have been defined that is not listed here.
    """

    reads: FrozenSet[str] = NONE
    runs: FrozenSet[str] = NONE
    swept: FrozenSet[str] = NONE
    writes: FrozenSet[str] = NONE
    timed: FrozenSet[str] = NONE
    pure: FrozenSet[str] = NONE
    impure: FrozenSet[str] = NONE
    everything: bool = False
    seeds: bool = False
    complete: bool = True
    version: str = ""


def together(parts: Iterable[object]) -> Dict[str, Any]:
    """Returns the union of several: names that any of them has, and the disjunction of their flags."""
    union: Dict[str, Any] = {}
    for part in parts:
        for name, value in vars(part).items():
            if isinstance(value, (bool, frozenset)):
                union[name] = union[name] | value if name in union else value
    return union


def closed(members: Iterable[str], edges: Iterable[Tuple[str, str]]) -> Set[str]:
    """Returns what was found, and everything that depends on it: in each edge, the first depends on the second."""
    closure, edges = set(members), list(edges)
    more = closure
    while more:
        closure |= more
        more = {upper for upper, lower in edges if lower in closure} - closure
    return closure


class Reach:
    """Decides whether chance may have influenced requests, by what is defined before and after."""

    def __init__(self, definitions: Optional[Definitions]) -> None:
        self._definitions = definitions
        self._marked: Set[str] = set()
        self._timed: Set[str] = set()
        self._stirred = False
        self._unread = False
        self._unknown = False

    @property
    def seeds(self) -> bool:
        return self._definitions is None or self._definitions.seeds

    def learn(self, definitions: Optional[Definitions]) -> None:
        before, self._definitions = self._definitions, definitions
        if definitions is None:
            return
        if definitions.complete:
            self._marked.clear()
        elif self._unread and (before is None or before.version != definitions.version):
            self._unknown = True  # a table with an unknown definition, of which nothing will be reported
        self._unread = False

    def note(self, words: Words, kind: str) -> None:
        """Notes what a request has defined, because the database system may not report it at once."""
        names = words.names
        if names is None or words.executes or words.calls or not names.isdisjoint(_STIRRING):
            self._stirred = True  # there are rows to be cleaned up
        if words.unseen or self._definitions is None or words.calls - self._definitions.pure:
            self._unread = True
        if words.defines:
            targets = words.made or names or NONE
            if words.defined or self._may_meet(words, kind):
                self._marked |= words.defined or targets
            elif words.timed or self._meets_times(words):
                self._timed |= targets

    def is_doubtful(self, words: Words, kind: str) -> bool:
        """Returns whether chance may influence a request of a kind (`read`, `write` or `other`) behind its words."""
        return self._may_meet(words, kind) or (kind != "read" and (self._unknown or self._meets_times(words)))

    def _meets_times(self, words: Words) -> bool:
        timed = self._definitions.timed if self._definitions is not None else NONE
        return not (words.names or NONE).isdisjoint(timed | self._timed)

    def _may_meet(self, words: Words, kind: str) -> bool:
        """Returns whether names may stand for something that depends on chance."""
        definitions = self._definitions
        if (
            definitions is None
            or definitions.everything
            or words.executes
            or words.names is None
            or words.calls - definitions.pure
        ):
            return True
        if ANY in self._marked or not words.called.isdisjoint(definitions.impure):
            return True
        met = definitions.reads | definitions.runs | self._marked
        return not words.names.isdisjoint(met if kind == "read" else met | definitions.writes)

    def may_change(self, words: Words) -> bool:
        """Returns whether mere reading may change something: it runs functions with unknown effects, or cleans up."""
        definitions = self._definitions
        if definitions is None or words.names is None:
            return True
        if not words.called.isdisjoint(definitions.impure):
            return True
        return not words.names.isdisjoint(definitions.runs | definitions.swept if self._stirred else definitions.runs)
