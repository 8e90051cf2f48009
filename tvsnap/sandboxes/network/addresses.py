"""Addresses that stand for names inside sandboxes.

A name has an address of 198.18.0.0/15 there, which belongs to nobody. So a connection tells which name was meant, which
the relay then looks up anew; what a program has learnt is still true in a fork, a year later; and a call that prints
an address prints the same each time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import sqlite3
from pathlib import Path

from tvsnap.model.errors import InfrastructureError

FILE = "network.db"
_FIRST = int(ipaddress.IPv4Address("198.18.1.0"))  # 198.18.0.* is the relay's, and the sandbox's own
_COUNT = int(ipaddress.IPv4Address("198.20.0.0")) - _FIRST
_BUSY = 10.0  # seconds


class Addresses:
    """The addresses of one data directory, which all its processes share. Used by one thread."""

    def __init__(self, home: Path) -> None:
        """
        Args:
            home: the data directory.

        Raises:
            InfrastructureError: its file cannot be opened.
        """
        try:
            self._database = sqlite3.connect(home / FILE, timeout=_BUSY, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS host (address INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)"
            )
        except sqlite3.Error as error:
            raise InfrastructureError(f"{home / FILE} cannot be used: {error}") from None
        self._names: dict[str, str] = {}
        self._addresses: dict[str, str] = {}

    def address_of(self, name: str) -> str:
        """Returns the address that stands for a name.

        Raises:
            InfrastructureError: the file cannot be written, or all addresses are taken.
        """
        known = self._addresses.get(name)
        if known is not None:
            return known
        wish = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % _COUNT
        try:
            for step in range(_COUNT):  # few steps, as names are few
                number = (wish + step) % _COUNT
                self._database.execute("INSERT OR IGNORE INTO host VALUES (?, ?)", (number, name))
                row = self._database.execute("SELECT address FROM host WHERE name = ?", (name,)).fetchone()
                if row is not None:
                    return self._remember(int(row[0]), name)
        except sqlite3.Error as error:
            raise InfrastructureError(f"no address for {name} can be kept: {error}") from None
        raise InfrastructureError(f"no address is left for {name}; delete {FILE} once no tvsnap uses it")

    def name_of(self, address: str) -> str | None:
        """Returns the name that an address stands for; None if it stands for none."""
        known = self._names.get(address)
        if known is not None:
            return known
        number = int(ipaddress.IPv4Address(address)) - _FIRST
        if not 0 <= number < _COUNT:
            return None
        try:
            row = self._database.execute("SELECT name FROM host WHERE address = ?", (number,)).fetchone()
        except sqlite3.Error:
            return None
        if row is not None:
            self._remember(number, row[0])
        return None if row is None else str(row[0])

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def _remember(self, number: int, name: str) -> str:
        address = str(ipaddress.IPv4Address(_FIRST + number))
        self._names[address] = name
        self._addresses[name] = address
        return address


def stands_for_a_name(address: str) -> bool:
    """Whether an address is one of those that stand for names."""
    return 0 <= int(ipaddress.IPv4Address(address)) - _FIRST < _COUNT
