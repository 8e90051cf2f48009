"""Addresses that stand for names inside sandboxes.

There, a name has an address in 198.18.0.0/15, which belongs to nobody. So a connection shows which name was meant, and
the relay resolves that again; an address that a program knows is still valid in a fork a year later; and a call that
prints an address prints the same each time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tvsnap.model.errors import InfrastructureError

FILE = "network.db"
_RANGES = (("198.18.1.0", "198.20.0.0"), ("240.0.0.0", "248.0.0.0"))
"""The first address of each range, and the one after its last. 198.18.0.* are the relay's and the sandbox's own.
Addresses from 240.0.0.0 on are reserved (RFC 1112), and not every program accepts them for hosts: the last resort.
"""
_TRIES = (16, 1024)  # for each range
_REMEMBERED = 100_000
_BUSY = 10.0  # seconds


class Addresses:
    """The addresses of one data directory, which all its processes share. Used by one thread.

    Each space has its own addresses: an address of one space leads nowhere in another one.
    """

    def __init__(self, home: Path) -> None:
        """Opens the file in the data directory `home`; raises InfrastructureError if that fails."""
        try:
            self._database = sqlite3.connect(home / FILE, timeout=_BUSY, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS names (space TEXT NOT NULL, address INTEGER NOT NULL, name TEXT NOT NULL, "
                "PRIMARY KEY (space, address), UNIQUE (space, name)) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise InfrastructureError(f"{home / FILE} cannot be used: {error}") from None
        self._names: dict[tuple[str, str], str] = {}
        self._addresses: dict[tuple[str, str], str] = {}

    def address_of(self, space: str, name: str) -> str:
        """Returns the address that stands for a name in a space.

        Raises InfrastructureError if the file cannot be written, or if no address is free.
        """
        address = self._addresses.get((space, name))
        if address is not None:
            return address
        try:
            for number in _wishes(f"{space} {name}"):
                self._database.execute("INSERT OR IGNORE INTO names VALUES (?, ?, ?)", (space, number, name))
                row = self._database.execute(
                    "SELECT address FROM names WHERE space = ? AND name = ?", (space, name)
                ).fetchone()
                if row is not None:
                    return self._remember(space, int(row[0]), name)
        except sqlite3.Error as error:
            raise InfrastructureError(f"no address for {name} can be kept: {error}") from None
        raise InfrastructureError(f"no address is free for {name}; delete {FILE} once no tvsnap uses it")

    def name_of(self, space: str, address: str) -> str | None:
        """Returns the name that an address stands for in a space; None if there is none."""
        name = self._names.get((space, address))
        if name is not None or not stands_for_a_name(address):
            return name
        number = int(ipaddress.IPv4Address(address))
        try:
            row = self._database.execute(
                "SELECT name FROM names WHERE space = ? AND address = ?", (space, number)
            ).fetchone()
        except sqlite3.Error:
            return None
        if row is not None:
            self._remember(space, number, row[0])
        return None if row is None else str(row[0])

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def _remember(self, space: str, number: int, name: str) -> str:
        if len(self._names) >= _REMEMBERED:
            self._names.clear()
            self._addresses.clear()
        address = str(ipaddress.IPv4Address(number))
        self._names[space, address] = name
        self._addresses[space, name] = address
        return address


def stands_for_a_name(address: str) -> bool:
    """Whether an address is in a range for names."""
    ip = ipaddress.ip_address(address)
    return ip.version == 4 and any(first <= int(ip) < end for first, end in _numbers())


def ranges() -> list[ipaddress.IPv4Network]:
    """Returns the ranges for names, as networks."""
    pairs = [tuple(map(ipaddress.IPv4Address, (first, end - 1))) for first, end in _numbers()]
    return [network for first, last in pairs for network in ipaddress.summarize_address_range(first, last)]


def _numbers() -> list[tuple[int, int]]:
    return [(int(ipaddress.IPv4Address(first)), int(ipaddress.IPv4Address(end))) for first, end in _RANGES]


def _wishes(name: str) -> Iterator[int]:
    """Yields the addresses that a name may have, the preferred one first."""
    wish = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    for (first, end), tries in zip(_numbers(), _TRIES, strict=True):
        for step in range(tries):
            yield first + (wish + step) % (end - first)
