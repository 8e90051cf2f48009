"""What a statement may reach beyond its words: views, defaults, triggers and functions over the clock or chance.

The host says which names a statement holds (`Words`), a database system which of those stand for what is left to chance
(`Definitions`). A name counts wherever it stands: that a column may be called as a view is costs a snapshot at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterable, Optional, Set, Tuple

NONE: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class Words:
    """What the words of a request name.

    Attributes:
        names: all names and words in it, in lower case; None if they cannot be told.
        calls: of those, functions that are not known to be the database system's own and to leave nothing to chance.
        called: all that stand where a function's name may stand.
        defined: what it makes or alters by what may be left to chance.
        made: what it makes or alters.
        timed: what it makes or alters may hold a time of day, or a time that stands where nothing is written.
        defines: it makes or alters something.
        executes: it may execute what its words do not show, or draws a salt, or notes down the time.
        unseen: it may define what its words do not show.
        plain: it changes rows, or tables and their like, and nothing in its words is left to chance.
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
    def of(cls, said: Dict[str, Any]) -> Words:
        """Returns them as a request says them."""
        sets: Dict[str, Any] = {name: frozenset(value) for name, value in said.items() if isinstance(value, list)}
        return cls(**{**said, **sets})

    def said(self) -> Dict[str, Any]:
        """Returns them as JSON, for a request."""
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in vars(self).items()}


ENDS = frozenset({"commit", "end", "constraints"})
"""Words of the statements at which deferred triggers are run."""
ANY = "*"
"""Stands among names for all of them: an operator or a cast is executed though nobody names it."""
_STIRRING = frozenset({"update", "delete", "merge"})

UNKNOWN = Words(names=None, executes=True, unseen=True)


@dataclass(frozen=True)
class Definitions:
    """Which names stand for what is left to chance, the clock, or what else no state holds.

    Attributes:
        reads: those of which reading is.
        runs: those of which reading runs functions of which nobody knows what they do; functions that may be called as
            a column is read are among them.
        swept: those of which reading cleans up in passing, so that it decides where later rows are put.
        writes: those to which writing is: by a default, a trigger, a rule, a constraint, a table that follows.
        timed: those of which a value may be written as another each day or second, though reading it is not: a time of
            day that becomes a date and time is one of today.
        pure: functions somebody has made that leave nothing to chance.
        impure: those that may do anything, whatever function of the database system's own has the same name.
        everything: any statement may meet it: an operator or a cast does it.
        seeds: a function may set the beginning of the session's random numbers.
        complete: nothing is defined but what these tell of.
        version: is another whenever something may have been defined that these do not tell of.
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
    """Returns what several tell together, by its name: names that any of them has, and what any of them says."""
    told: Dict[str, Any] = {}
    for part in parts:
        for name, value in vars(part).items():
            if isinstance(value, (bool, frozenset)):
                told[name] = told[name] | value if name in told else value
    return told


def closed(found: Iterable[str], edges: Iterable[Tuple[str, str]]) -> Set[str]:
    """Returns what was found, and what stands on it: of each edge, the first does on the second."""
    known, edges = set(found), list(edges)
    more = known
    while more:
        known |= more
        more = {upper for upper, lower in edges if lower in known} - known
    return known


class Reach:
    """Tells of requests whether chance may have entered them, by what is defined before and after."""

    def __init__(self, known: Optional[Definitions]) -> None:
        self._known = known
        self._marked: Set[str] = set()
        self._timed: Set[str] = set()
        self._stirred = False
        self._unread = False
        self._unknown = False

    @property
    def seeds(self) -> bool:
        return self._known is None or self._known.seeds

    def learn(self, known: Optional[Definitions]) -> None:
        before, self._known = self._known, known
        if known is None:
            return
        if known.complete:
            self._marked.clear()
        elif self._unread and (before is None or before.version != known.version):
            self._unknown = True  # a table by text that nobody saw, of which nobody will tell
        self._unread = False

    def note(self, words: Words, kind: str) -> None:
        """Takes note of what a request has defined, which the database system may not tell of at once."""
        names = words.names
        if names is None or words.executes or words.calls or not names.isdisjoint(_STIRRING):
            self._stirred = True  # there are rows to be cleaned up
        if words.unseen or self._known is None or words.calls - self._known.pure:
            self._unread = True
        if words.defines:
            made = words.made or names or NONE
            if words.defined or self._may_meet(words, kind):
                self._marked |= words.defined or made
            elif words.timed or self._meets_times(words):
                self._timed |= made

    def is_doubtful(self, words: Words, kind: str) -> bool:
        """Whether chance may enter a request of a kind (`read`, `write` or `other`), by what lies behind its words."""
        return self._may_meet(words, kind) or (kind != "read" and (self._unknown or self._meets_times(words)))

    def _meets_times(self, words: Words) -> bool:
        known = self._known.timed if self._known is not None else NONE
        return not (words.names or NONE).isdisjoint(known | self._timed)

    def _may_meet(self, words: Words, kind: str) -> bool:
        """Whether what is left to chance may be met by names."""
        known = self._known
        if known is None or known.everything or words.executes or words.names is None or words.calls - known.pure:
            return True
        if ANY in self._marked or not words.called.isdisjoint(known.impure):
            return True
        met = known.reads | known.runs | self._marked
        return not words.names.isdisjoint(met if kind == "read" else met | known.writes)

    def may_change(self, words: Words) -> bool:
        """Whether mere reading may change something: it runs what nobody knows the effects of, or cleans up."""
        known = self._known
        if known is None or words.names is None:
            return True
        if not words.called.isdisjoint(known.impure):
            return True
        return not words.names.isdisjoint(known.runs | known.swept if self._stirred else known.runs)
