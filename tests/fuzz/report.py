"""What a campaign came to: figures, a table of violations by topic, and the findings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fuzz.cases import FREE, IDS
from tests.fuzz.compare import NORMALISED


@dataclass
class Report:
    """Sums of what the workers wrote."""

    counts: Counter[str] = field(default_factory=Counter)
    worlds: dict[str, Counter[str]] = field(default_factory=dict)
    violations: Counter[tuple[str, str]] = field(default_factory=Counter)
    cases: dict[tuple[str, str], str] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)
    unreachable: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, logs: Iterable[Path]) -> Report:
        """Returns what is in the workers' logs so far."""
        found = cls()
        for log in logs:
            for line in log.read_text().splitlines(keepends=True) if log.exists() else ():
                if line.endswith("\n"):
                    found.add(json.loads(line))
        return found

    def add(self, record: dict[str, Any]) -> None:
        """Takes in the record of one case."""
        counts = Counter(record["counts"])
        counts["histories"] += 1
        counts["violated"] += bool(record["violations"])
        counts["violations"] += len(record["violations"])
        counts["broken"] += bool(record["broken"])
        self.counts.update(counts)
        self.worlds.setdefault(record["world"], Counter()).update(counts)
        self.unreachable.update(record["unreachable"])
        self.topics.update(record["topics"])
        if record["broken"]:
            self.broken[record["broken"][-400:]] += 1
        for kind, topic in record["violations"]:
            self.violations[kind, topic] += 1
            self.cases.setdefault((kind, topic), f"{record['case']} {record['world']}")
        self.findings += record["findings"]

    def as_json(self, free: Iterable[str], seconds: float) -> dict[str, Any]:
        """Returns all of it."""
        return {
            "seconds": round(seconds, 1),
            "free": sorted(free),
            "counts": dict(self.counts),
            "worlds": {name: dict(counts) for name, counts in self.worlds.items()},
            "violations": [
                {"kind": kind, "topic": topic, "count": count, "first": self.cases[kind, topic]}
                for (kind, topic), count in self.violations.most_common()
            ],
            "topics": dict(self.topics),
            "unreachable": dict(self.unreachable.most_common(30)),
            "broken": dict(self.broken.most_common(10)),
            "findings": self.findings,
        }

    def line(self) -> str:
        """Returns how it stands, in one line."""
        counts = self.counts
        return (
            f"{counts['histories']} histories, {counts['calls']} calls ({counts['hits']} hits), "
            f"{counts['probes']} probes; {counts['violated']} with violations of {len(self.violations)} kinds, "
            f"{counts['unreachable']} unreachable"
        )

    def show(self, console: Console, free: Iterable[str], seconds: float) -> None:
        """Prints it."""
        table = Table(box=None)
        names = (
            "histories",
            "fresh",
            "calls",
            "hits",
            "probes",
            "violated",
            "violations",
            "undecided",
            "unreachable",
            "broken",
        )
        for title in ("world", *names, "violated / 1000 calls"):
            table.add_column(title, justify="left" if title == "world" else "right")
        for world, counts in [*sorted(self.worlds.items()), ("all", self.counts)]:
            rate = f"{1000 * counts['violated'] / max(counts['calls'], 1):.2f}"
            table.add_row(world, *(str(counts[name]) for name in names), rate)
        console.print(table)
        if self.violations:
            found = Table("violation", "topic", "count", "histories that try it", "first", box=None)
            for (kind, topic), count in sorted(self.violations.items(), key=lambda item: item[0][::-1]):
                found.add_row(kind, topic, str(count), str(self.topics[topic]), self.cases[kind, topic])
            console.print(found)
        for text, count in self.unreachable.most_common(5):
            console.print(f"{count} times unreachable, as the promise allows: {text}", markup=False)
        for text, count in self.broken.most_common(5):
            console.print(f"{count} times the case said nothing: {text}", markup=False)
        words = {**FREE, **IDS}
        console.print("what may differ from a fresh execution: " + "; ".join(words[name] for name in sorted(free)))
        console.print(
            "replaced in what recorded calls print: " + ", ".join(pattern for pattern, _ in NORMALISED), markup=False
        )
        console.print(f"{seconds:.0f} s: {self.line()}")
