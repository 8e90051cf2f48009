"""What counts as the same: with what a fresh execution returned, and with what the rollout itself was shown before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from tests.fuzz.cases import EARLY, LATE, Seen, Step, Violation
from tvsnap.environments.terminal import LOST

NORMALISED = (
    (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
    (r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}\b", "DATE"),
    (r"\b[0-2]?\d:[0-5]\d(:[0-5]\d)?(\.\d+)?\b", "TIME"),
    (r"\b\d+(\.\d+)? ?(ns|us|µs|ms|s|sec|seconds)\b", "DURATION"),
    (r" *% Total .*\n.*Dload .*\n", ""),
    (r"[\r\n]*( *\d+[kMG]?){8} +[-:\d]+ +[-:\d]+ +[-:\d]+ +\d+[kMG]?", ""),
)
"""Replaced in what recorded histories print, before it is compared with a fresh execution: clocks, durations, and the
progress of downloads (curl), which is shown where they take long enough."""
_NORMALISED = [(re.compile(pattern), word) for pattern, word in NORMALISED]

_SCOPED = (
    "A directory",
    "A mktemp",
    "A parameters",
    "A process",
    "A process id",
    "A coprocess",
    "A job",
    "A trap",
    "A descriptor",
    "A keys",
    "A variable",
    "A function",
    "B counting",
)
"""Topics whose facts live in the shell, or in processes: other commands may end them."""
_TO_BE_MADE = ("C7 now in a transaction",)
"""Topics whose views show something else each time, until the call has been made that begins it."""
_ENDS = re.compile(r"\b(cd|pushd|popd|exit|kill|unset|exec|trap|disown|suspend)\b|\bset --")
"""Commands that may end what `_SCOPED` names."""
_UNDOES = re.compile(r"\b(ROLLBACK|COMMIT|DROP|USE|TRUNCATE|SAVEPOINT|autocommit|KILL|pg_terminate_backend)\b")
"""Statements that may undo or hide what tables hold."""

MISSING = "(nothing)"


def normalise(text: str) -> str:
    """Returns an output without the clocks and durations in it."""
    for pattern, word in _NORMALISED:
        text = pattern.sub(word, text)
    return text


def agrees(step: Step, seen: Seen, expected: Seen, others: Sequence[Seen] = (), growing: Sequence[str] = ()) -> bool:
    """Whether what was seen is what a fresh execution returns.

    Args:
        step: the call.
        seen, expected: what it came to, through the cache and without.
        others: what further fresh executions came to: where they differ among themselves, nothing is expected.
        growing: directories in which a job writes all the time: nothing is expected of what is in them.
    """
    if not comparable(seen, expected):
        return True
    others = [other for other in others if comparable(other, expected)]
    if step.lines and seen.exit_code == expected.exit_code:
        fresh = [set(each.output.splitlines()) for each in (expected, *others)]
        free = {_key(line) for each in fresh for line in each if any(line not in other for other in fresh)}
        groups = {_group(key) for key in free if any(key not in map(_key, lines) for lines in fresh)} - {""}
        groups |= {f"{directory}/" for directory in growing}
        differing = {_key(line) for line in set(seen.output.splitlines()) ^ fresh[0]}
        return all(key in free or any(key.startswith(group) for group in groups) for key in differing)
    if any(_value(step, each) != _value(step, expected) for each in others):
        return True
    return _value(step, seen) == _value(step, expected)


def comparable(seen: Seen, expected: Seen) -> bool:
    """Whether neither call was cut short, and both came before, or both after, what is due by itself."""
    return not seen.cut_short and not expected.cut_short and timely(seen, expected)


def timely(seen: Seen, expected: Seen) -> bool:
    """Whether two calls came both before, or both after, what is due by itself; not in between, where that is open."""
    pairs = zip(seen.since, expected.since, strict=True)
    return all(
        max(one[0] + seen.took, other[0] + expected.took) < EARLY or min(one[1], other[1]) > LATE
        for one, other in pairs
    )


def difference(step: Step, seen: Seen, expected: Seen) -> tuple[str, str]:
    """Returns what was expected and what was seen, where they differ."""
    if step.lines and seen.exit_code == expected.exit_code:
        one, other = expected.output.splitlines(), seen.output.splitlines()
        lost = [line for line in one if line not in set(other)]
        new = [line for line in other if line not in set(one)]
        return "\n".join(lost[:8]), "\n".join(new[:8])
    return _words(expected), _words(seen)


_ROW = re.compile(r"(?P<table>INSERT INTO .*?VALUES ?\(|\w+\|)[^,|]*")


def _key(line: str) -> str:
    """Returns what a line of a probe is about: a path, a command, a name, a table and a row's first column."""
    row = _ROW.match(line)
    if row:
        return row[0]
    declared = re.match(r"declare -\S+ (\w+)", line)
    if declared:
        return declared[1]
    for end in (" | ", " id "):
        if end in line:
            return line.partition(end)[0].partition("=")[0]  # what comes then may be drawn by chance
    return re.split(r"[ =]", line, maxsplit=1)[0]


def _group(key: str) -> str:
    """Returns how all keys begin that have no names of their own where one of them is drawn by chance: "" for none."""
    row = _ROW.match(key)
    return row["table"] if row else "".join(key.rpartition("/")[:2])


def _value(step: Step, seen: Seen) -> tuple[str, int | None, bool]:
    output, exit_code, timed_out = seen.value()
    return (normalise(output) if step.topic == "recorded" else output), exit_code, timed_out


def _words(seen: Seen) -> str:
    status = "timed out" if seen.timed_out else f"status {seen.exit_code}"
    return f"{seen.output[:600]!r} ({status})"


class Ledger:
    """What one rollout has been shown, until it is overwritten."""

    def __init__(self) -> None:
        self.facts: dict[str, tuple[str, str]] = {}
        self._void: tuple[str, ...] = _TO_BE_MADE
        self._since: set[str] = set()

    def copy(self) -> Ledger:
        """Returns the same for a rollout that goes on from there."""
        found = Ledger()
        found.facts, found._void, found._since = dict(self.facts), self._void, set(self._since)
        return found

    def note(self, step: Step, seen: Seen, action: int, how: str) -> Violation | None:
        """Takes in what a call showed; returns a violation if it contradicts what was shown before.

        Args:
            step: the call.
            seen: what it came to.
            action: the number of the action.
            how: where it was seen, in words.
        """
        if seen.cut_short or LOST in seen.output:
            self.facts.clear()
            self._forget("")
            return None
        for fact in step.sets:
            self.facts.pop(fact, None)
            self._since.add(fact)
        if not step.shows:
            if step.name in ("bash", "keys") and (step.topic == "recorded" or _ENDS.search(str(step.arguments))):
                self._forget(*_SCOPED, but=step.sets)
            elif step.name == "sql" and (step.topic == "recorded" or _UNDOES.search(step.arguments["query"])):
                self._forget("C7", but=step.sets)
            return None
        unknown = seen.exit_code is None or (step.form in ("rows", "distinct") and seen.exit_code != 0)
        if unknown or (step.shows.startswith(self._void) and step.shows not in self._since):
            return None
        value = fact_value(step, seen)
        before = self.facts.get(step.shows)
        if before is None and step.form == "rows" and value == MISSING:
            return None  # what makes it was left out
        if before is None or agree(step.form, before[0], value):
            self.facts[step.shows] = value, str(step)
            return None
        what = "a value of its own" if step.form == "distinct" else f"{before[0][:300]}, as shown by {before[1][:200]}"
        kind = "other past" if how == "by the rollout" else "other state"
        return Violation(kind, step.topic, action, str(step), what, value[:300], f"{step.shows}, seen {how}")

    def _forget(self, *topics: str, but: Iterable[str] = ()) -> None:
        """Forgets facts of some topics, which mean nothing until a call makes them again."""
        self._void = tuple({*self._void, *topics})
        self._since = set(but)
        self.facts = {
            fact: shown for fact, shown in self.facts.items() if fact in self._since or not fact.startswith(topics)
        }


def agree(form: str, before: str, now: str) -> bool:
    """Whether two values of one fact may follow each other; see `Step.form`."""
    if form == "distinct":
        return before != now or now == MISSING
    if form == "grows":
        return _number(now) >= _number(before)
    return before == now


def fact_value(step: Step, seen: Seen) -> str:
    """Returns the fact that a call showed, the same for all that show it."""
    if seen.exit_code != 0 or not seen.output.strip():
        return MISSING
    if step.form == "rows":
        said = json.loads(seen.output)
        values = [value for row in said.get("rows", ()) for value in row if value is not None]
        return json.dumps(said["rows"]) if values else MISSING
    return seen.output.strip()


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
