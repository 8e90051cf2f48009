"""Adapts a dump of MySQL 8 to MariaDB 10.10 or newer, by replacing the few words that only MySQL knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tvsnap.plugins.sql.databases.dumps.splitting import statements
from tvsnap.plugins.sql.inside.mariadb.scripts import PART

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

# MySQL 8's collations follow Unicode 9 and count trailing spaces (NO PAD). MariaDB's nearest are those of Unicode 14
# that do so as well; general_ci would ignore such spaces, and distinguish letters that MySQL's treats as equal.
# that do so as well; general_ci would ignore such spaces, and tell letters apart that MySQL's takes for equal.
_LANGUAGES = {
    "cs": "czech", "da": "danish", "de_pb": "german2", "eo": "esperanto", "es": "spanish", "es_trad": "spanish2",
    "et": "estonian", "hr": "croatian", "hu": "hungarian", "is": "icelandic", "la": "roman", "lt": "lithuanian",
    "lv": "latvian", "pl": "polish", "ro": "romanian", "sk": "slovak", "sl": "slovenian", "sv": "swedish",
    "tr": "turkish", "vi": "vietnamese",
}  # fmt: skip
_USER = r"(?:`[^`]*`|'[^']*'|\w+)"
_EDITED = re.compile(
    rf"{PART}"
    r"|\butf8mb4_(?:(?P<language>[a-z]+(?:_[a-z]+)?)_)?0900_(?P<sensitivity>ai_ci|as_ci|as_cs|bin)\b"
    rf"|(?P<definer>\bDEFINER\s*=\s*{_USER}(?:@{_USER})?)"  # the user who loads views and routines owns them
    r"|(?P<gtid>@@GLOBAL\.GTID_PURGED)".encode("latin-1"),
    re.DOTALL | re.IGNORECASE,
)
_ROWS = (b"insert", b"replac")


def write_for_mariadb(dump: bytes | mmap.mmap, script: Path) -> list[str]:
    """Writes a dump in a form that MariaDB can load to `script`, each statement on its original line.

    Returns:
        The databases that the dump names, in order.

    Raises:
        DumpError: see `statements`.
    """
    databases: dict[str, None] = {}
    position = 0
    with script.open("wb") as file:
        for statement in statements(dump):
            if name := statement.database:
                databases[name] = None
            if statement.text[:6].lower() not in _ROWS:
                file.write(dump[position : statement.start])
                file.write(_EDITED.sub(_edited, statement.text))
                position = statement.end
        file.write(dump[position:])
    return list(databases)


def _edited(part: re.Match[bytes]) -> bytes:
    if part["definer"]:
        return b""
    if part["gtid"]:
        return b"@gtid_purged"  # MariaDB numbers transactions differently
    if not part["sensitivity"]:
        return part[0]
    sensitivity = part["sensitivity"].decode().lower()
    if sensitivity == "bin":
        return b"utf8mb4_nopad_bin"
    language = _LANGUAGES.get((part["language"] or b"").decode().lower(), "")
    return f"utf8mb4_uca1400_{language}{'_' if language else ''}nopad_{sensitivity}".encode()
