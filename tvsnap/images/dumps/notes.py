"""What a conversion left out or changed, counted: one line for all that is of a kind."""

from __future__ import annotations

_NAMED = 5


class Notes:
    """Counts what happened, by kind, in the order of the first of each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._names: dict[str, list[str]] = {}

    def add(self, kind: str, name: str = "") -> None:
        """Counts something.

        Args:
            kind: the line to be; `{n}` is the number, `{s}` and `{es}` are a plural's endings.
            name: of what it happened to; counts once for a kind, and the first few are listed.
        """
        if name:
            names = self._names.setdefault(kind, [])
            if name in names:
                return
            names.append(name)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def lines(self) -> tuple[str, ...]:
        """One line a kind."""
        return tuple(self._line(kind, count) for kind, count in self._counts.items())

    def _line(self, kind: str, count: int) -> str:
        endings = ("", "") if count == 1 else ("s", "es")
        line = kind.replace("{n}", str(count)).replace("{s}", endings[0]).replace("{es}", endings[1])
        names = self._names.get(kind, [])
        if not names:
            return line
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{line}: {', '.join(names[:_NAMED])}{more}"
