"""A MySQL 8 dump for MariaDB 10.10 or newer: what only MySQL knows is taken out, the rest stays as it is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tvsnap.images.dumps.notes import Notes
from tvsnap.images.dumps.schema import SYSTEM, Piece, left_out, pieces
from tvsnap.images.dumps.splitting import Statement
from tvsnap.images.dumps.tokens import Cursor, Token, executed

# MySQL 8's collations follow Unicode 9 and count spaces at the end (NO PAD). MariaDB's nearest are those of Unicode 14
# that do so as well; general_ci would ignore such spaces, and tell letters apart that MySQL's takes for equal.
_COLLATION = re.compile(r"utf8mb4_(?:([a-z]+(?:_[a-z]+)?)_)?0900_(ai_ci|as_ci|as_cs|bin)", re.IGNORECASE)
_LANGUAGES = {
    "cs": "czech", "da": "danish", "de_pb": "german2", "eo": "esperanto", "es": "spanish", "es_trad": "spanish2",
    "et": "estonian", "hr": "croatian", "hu": "hungarian", "is": "icelandic", "la": "roman", "lt": "lithuanian",
    "lv": "latvian", "pl": "polish", "ro": "romanian", "sk": "slovak", "sl": "slovenian", "sv": "swedish",
    "tr": "turkish", "vi": "vietnamese",
}  # fmt: skip
# MariaDB takes versions from 5.7 up to its own first one for MySQL's, and skips what they guard.
_SKIPPED_FROM, _SKIPPED_TO = 50700, 99999
_SERVER_SETTINGS = re.compile(
    r"(?i)\bGTID|SQL_LOG_BIN|GLOBAL\b|sql_require_primary_key|sql_generate_invisible|default_collation_for|"
    r"information_schema_stats_expiry|show_create_table_skip"
)
_OPTIONS = {
    "COMPRESSION", "ENCRYPTION", "SECONDARY_ENGINE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE",
    "AUTOEXTEND_SIZE",
}  # fmt: skip
_COLUMN_OPTIONS = {"STORAGE": {"DISK", "MEMORY"}, "COLUMN_FORMAT": {"DEFAULT", "FIXED", "DYNAMIC"}}


def convert(source: Path, script: Path, notes: Notes) -> list[str]:
    """Converts a dump.

    Args:
        script: the file to be written. It runs as one transaction as far as MariaDB can: definitions commit.

    Returns:
        The databases that the dump names, in order.

    Raises:
        DumpError: the dump cannot be read.
    """
    databases: dict[str, None] = {}
    with script.open("wb") as file:
        file.write(b"SET autocommit = 0, unique_checks = 0, foreign_key_checks = 0;\n")
        for piece in pieces(source):
            if piece.brings_rows:
                if piece.database.lower() not in SYSTEM:
                    _write(file, piece.statement, piece.statement.text)
            elif not _dropped(piece, databases, notes):
                text = _Edits(piece, notes).text()
                if text.strip():
                    _write(file, piece.statement, text.encode("utf-8", "surrogateescape"))
        file.write(b"COMMIT;\n")
    return list(databases)


def _write(file: IO[bytes], statement: Statement, text: bytes) -> None:
    if statement.delimiter == ";":
        file.write(text + b";\n")
    else:
        mark = statement.delimiter.encode("latin-1")
        file.write(b"DELIMITER " + mark + b"\n" + text + b"\n" + mark + b"\nDELIMITER ;\n")


def _dropped(piece: Piece, databases: dict[str, None], notes: Notes) -> bool:
    """Whether a statement is left out as a whole; also takes down the databases."""
    cursor = piece.cursor()
    name = ""
    if cursor.take("USE"):
        name = cursor.name()
    elif cursor.take("CREATE", "DATABASE") or cursor.take("CREATE", "SCHEMA"):
        cursor.take("IF", "NOT", "EXISTS")
        name = cursor.name()
    elif cursor.take("DROP", "DATABASE"):
        cursor.take("IF", "EXISTS")
        if cursor.name().lower() in SYSTEM:
            return True
    if name and name.lower() in SYSTEM:
        if piece.database == name:
            notes.add("{n} database{s} of the server itself left out", name)
        return True
    if name:
        databases[name] = None
        return False
    if piece.database.lower() in SYSTEM:
        return True
    if kind := left_out(piece):
        notes.add(kind)
        return True
    return piece.cursor().take("SET") and _SERVER_SETTINGS.search(piece.text) is not None


class _Edits:
    """What is changed in one statement, as spans of its text and what takes their place."""

    def __init__(self, piece: Piece, notes: Notes) -> None:
        self._piece = piece
        self._notes = notes
        self._every = self._without_skipped(piece.every)
        self._executed = executed(self._every)
        self._spans: list[tuple[int, int, str]] = self._skipped
        self._collations()
        self._definers()
        words = [token.upper for token in self._executed[:3]]
        if words[:1] in (["CREATE"], ["ALTER"]) and {"TABLE", "DATABASE", "SCHEMA"} & set(words):
            self._table()

    def text(self) -> str:
        """The statement as it is to be."""
        found, position = [], 0
        for start, end, new in sorted(self._spans):
            if start >= position:
                found += [self._piece.text[position:start], new]
                position = end
        return "".join([*found, self._piece.text[position:]])

    def _without_skipped(self, every: Sequence[Token]) -> list[Token]:
        """Takes out the comments that MariaDB would skip; they would else be mistaken for parts of the statement."""
        self._skipped: list[tuple[int, int, str]] = []
        kept: list[Token] = []
        start = None
        for token in every:
            if token.kind == "open" and start is None and _is_skipped(token.text):
                start = token.start
            elif start is None:
                kept.append(token)
            elif token.kind == "close":
                self._skipped.append((start, token.end, ""))
                kept += self._skip(Token("comment", self._piece.text[start : token.end], start, token.end))
                start = None
        return kept

    def _skip(self, comment: Token) -> list[Token]:
        """Notes what is lost; returns what of it still has to be known."""
        if "NOT ENFORCED" in comment.text.upper():
            return [comment._replace(kind="word", text=word) for word in ("NOT", "ENFORCED")]
        if "INVISIBLE" in comment.text.upper():
            self._notes.add("{n} invisible column{s} or key{s} became visible")
        else:
            self._notes.add("{n} hint{s} for MySQL 8 left out")
        return []

    def _remove(self, first: Token, last: Token) -> None:
        self._spans.append((first.start, last.end, ""))

    def _collations(self) -> None:
        for token in self._executed:
            name = token.text.strip("'\"`")
            if token.kind in ("word", "name", "string") and (match := _COLLATION.fullmatch(name)):
                new = _collation(match)
                self._spans.append((token.start, token.end, token.text.replace(name, new)))
                self._notes.add(f"collation {name.lower()} became {new} in {{n}} place{{s}}")

    def _definers(self) -> None:
        """The users that own views and routines are left out of the dump, so whoever loads it owns them."""
        tokens = self._executed
        if not tokens or tokens[0].upper not in ("CREATE", "ALTER"):
            return
        for place, token in enumerate(tokens[:8]):
            if token.upper == "DEFINER" and place + 2 < len(tokens) and tokens[place + 1].upper == "=":
                last = place + 2
                while last + 1 < len(tokens) and tokens[last + 1].text.startswith("@"):
                    last += 1 if tokens[last + 1].text != "@" else 2
                self._remove(token, tokens[last])
                self._notes.add("{n} definer{s} of views, triggers and routines left out")
                return

    def _table(self) -> None:
        self._options()
        self._generated()
        cursor = Cursor(self._piece.text, self._executed)
        while not cursor.done and cursor.peek().upper != "(":
            cursor.next()
        items = cursor.parenthesised().items() if not cursor.done else []
        for place, item in enumerate(items):
            if _is_functional(item):
                self._notes.add("{n} index{es} of an expression left out", item.rest()[:60])
            elif _is_unenforced(item):
                self._notes.add("{n} check{s} left out that MySQL does not enforce")
            else:
                continue
            # With the comma before it; the first item of a table is a column.
            start, end = items[place - 1].remaining[-1].end, item.remaining[-1].end
            self._spans = [span for span in self._spans if not start <= span[0] < end]
            self._spans.append((start, end, ""))

    def _options(self) -> None:
        tokens = self._executed
        for place, token in enumerate(tokens):
            follows = [other.upper for other in tokens[place + 1 : place + 3]]
            if token.upper in _OPTIONS and len(follows) == 2 and follows[0] == "=":
                first = place - 1 if tokens[place - 1].upper == "DEFAULT" else place
                self._remove(tokens[first], tokens[place + 2])
                self._notes.add("{n} option{s} that only MySQL knows left out")
            elif token.upper in _COLUMN_OPTIONS and set(follows[:1]) <= _COLUMN_OPTIONS[token.upper] and follows:
                self._remove(token, tokens[place + 1])
                self._notes.add("{n} option{s} that only MySQL knows left out")
            elif token.upper == "WITH" and place + 2 < len(tokens) and tokens[place + 1].upper == "PARSER":
                self._remove(token, tokens[place + 2])
                self._notes.add("{n} parser{s} of a full-text index left out")

    def _generated(self) -> None:
        """NOT NULL after a generated column is MySQL's alone."""
        tokens = self._executed
        for place, token in enumerate(tokens[:-2]):
            if token.upper in ("VIRTUAL", "STORED") and tokens[place - 1].upper == ")":
                follows = [other.upper for other in tokens[place + 1 : place + 3]]
                if follows == ["NOT", "NULL"]:
                    self._remove(tokens[place + 1], tokens[place + 2])
                elif follows[0] == "NULL":
                    self._remove(tokens[place + 1], tokens[place + 1])


def _is_skipped(mark: str) -> bool:
    digits = mark.removeprefix("/*!")
    return digits.isdigit() and _SKIPPED_FROM <= int(digits) <= _SKIPPED_TO


def _collation(match: re.Match[str]) -> str:
    sensitivity = match[2].lower()
    if sensitivity == "bin":
        return "utf8mb4_nopad_bin"
    language = _LANGUAGES.get((match[1] or "").lower(), "")
    return f"utf8mb4_uca1400_{language}{'_' if language else ''}nopad_{sensitivity}"


def _is_functional(item: Cursor) -> bool:
    if item.peek().upper not in ("KEY", "INDEX", "UNIQUE", "CONSTRAINT"):
        return False
    words = item.remaining
    if not {"KEY", "INDEX", "UNIQUE"} & {token.upper for token in words[:3]}:
        return False
    depth = 0
    for before, token in itertools.pairwise(words):
        depth += (before.upper == "(") - (before.upper == ")")
        if depth == 1 and token.upper == "(" and before.upper in ("(", ","):
            return True
    return False


def _is_unenforced(item: Cursor) -> bool:
    return item.peek().upper in ("CHECK", "CONSTRAINT") and [token.upper for token in item.remaining[-2:]] == [
        "NOT", "ENFORCED",
    ]  # fmt: skip
