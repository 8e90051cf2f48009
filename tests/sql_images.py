"""What the tests of databases share: an image of each database system, and short ways to ask a session in a sandbox."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tvsnap.environments import environment
from tvsnap.environments.base import Environment
from tvsnap.images import Image, ImageStore
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import MachineLacks
from tvsnap.model.limits import Limits
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.protocol import Sandbox

SYSTEMS = ("sqlite", "postgres", "mariadb")
DATABASES = {
    "shop": """
        CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(10, 2));
        INSERT INTO items VALUES (1, 'apple', 1.50), (2, 'pear', 2.25), (3, 'plum', NULL);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, item INTEGER NOT NULL, FOREIGN KEY (item) REFERENCES items (id));
        CREATE INDEX orders_item ON orders (item);
        INSERT INTO orders VALUES (1, 2), (2, 2), (3, 1);
        """,
    "spare": """
        CREATE TABLE parts (id INTEGER PRIMARY KEY, name VARCHAR(40));
        INSERT INTO parts VALUES (1, 'bolt');
        """,
}
"""What every database system's image holds; `shop` is in use from the start."""

OWNERS = {"postgres": 'ALTER TABLE items OWNER TO elsewhere; GRANT SELECT ON items TO "nobody here";'}
"""What a plain dump of another server says of its roles, which are not there."""

CONSOLES = {
    "sqlite": 'sqlite3 /srv/sqlite/shop.db "{}"',
    "postgres": 'psql -X -q -A -t -d shop -c "{}"',
    "mariadb": 'mariadb -N -B shop -e "{}"',
}
"""How a statement is given to a database system in the terminal."""

# A dying process loses its command line before its sockets, and keeps its pid: only once it is reaped is it gone.
KILL_SESSION = "dying=$(pgrep -x -f python3); kill -9 $dying; while kill -0 $dying 2> /dev/null; do sleep 0.02; done"
KILL_SERVER = {
    "postgres": "pkill -9 -x postgres && while pgrep -r D,R,S,T -x postgres > /dev/null; do sleep 0.02; done",
    "mariadb": "pkill -9 -x mariadbd && while pgrep -r D,R,S,T -x mariadbd > /dev/null; do sleep 0.02; done",
    "sqlite": KILL_SESSION,
}

ROOT = Path(__file__).parents[1]


class SqlImages:
    """The database systems' images, each built when it is first asked for.

    `TVSNAP_TEST_IMAGES` names a directory in which several sessions build them once.
    """

    def __init__(self, home: Path, scratch: Path) -> None:
        self.store = ImageStore(home)
        self._scratch = scratch
        self._built: dict[str, Image] = {}

    def get(self, system: str) -> Image:
        """Returns the image that tvsnap ships for a database system, with the databases of `DATABASES`."""
        if system not in self._built:
            spec = yaml.safe_load((ROOT / "images" / system / "image.yaml").read_text())
            spec |= {"name": f"test-{system}", "databases": {name: f"{name}.sql" for name in DATABASES}}
            folder = self._scratch / system
            folder.mkdir()
            (folder / "image.yaml").write_text(yaml.safe_dump(spec))
            for name, script in DATABASES.items():
                (folder / f"{name}.sql").write_text(script + (OWNERS.get(system, "") if name == "shop" else ""))
            try:
                self._built[system] = self.store.build(folder)
            except MachineLacks as lack:
                pytest.skip(str(lack))
        return self._built[system]


@pytest.fixture(scope="session")
def sql_images(tvsnap_home: Path, tmp_path_factory: pytest.TempPathFactory) -> SqlImages:
    """The images of all database systems."""
    shared = os.environ.get("TVSNAP_TEST_IMAGES")
    return SqlImages(Path(shared) if shared else tvsnap_home, tmp_path_factory.mktemp("sql-images"))


@pytest.fixture(scope="session", params=SYSTEMS)
def sql_system(request: pytest.FixtureRequest) -> str:
    """Each database system's name."""
    return str(request.param)


@pytest.fixture(scope="session")
def sql_image(sql_images: SqlImages, sql_system: str) -> Image:
    """Each database system's image."""
    return sql_images.get(sql_system)


@dataclass(frozen=True)
class Client:
    """The tools of one sandbox, without a cache."""

    sandbox: Sandbox
    environment: Environment
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def of(cls, sandbox: Sandbox, limits: Limits | None = None) -> Client:
        return cls(sandbox, environment(sandbox.image.environment), limits or Limits())

    def call(self, name: str, /, within: float = 30.0, **arguments: Any) -> ToolResult:
        """Makes a call of any tool, which may take `within` seconds."""
        return self.environment.execute(self.sandbox, ToolCall(name, arguments), within, self.limits)

    def sql(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Returns what a query came to, which must not be a timeout."""
        return answered(self.call("sql", query=query, **arguments))

    def rows(self, query: str, **arguments: Any) -> list[list[Any]]:
        """Returns the rows of a query."""
        return rows_of(self.sql(query, **arguments), query)

    def do(self, *queries: str) -> None:
        """Runs queries that must not fail."""
        for query in queries:
            said = self.sql(query)
            assert "error" not in said, (query, said)

    def error(self, query: str, **arguments: Any) -> str:
        """Returns the error that a query must come to."""
        said = self.sql(query, **arguments)
        assert "error" in said, (query, said)
        return str(said["error"])

    def console(self, statement: str) -> str:
        """Gives a statement to the database system's own client in a fresh shell; returns what that printed."""
        outcome = self.sandbox.exec(CONSOLES[self.environment.name].format(statement), timeout=60)
        assert outcome.exit_code == 0, outcome.output
        return outcome.output.decode()


def answered(result: ToolResult) -> dict[str, Any]:
    """Returns a result's JSON."""
    assert not result.timed_out, result
    said: dict[str, Any] = json.loads(result.output)
    assert (result.exit_code == 0) == ("error" not in said), result
    return said


def rows_of(said: dict[str, Any], query: str) -> list[list[Any]]:
    """Returns the rows of an answer to one statement, or of the last of several that had any."""
    assert "error" not in said, (query, said)
    found = [part["rows"] for part in said.get("results", [said]) if "rows" in part]
    assert found, (query, said)
    rows: list[list[Any]] = found[-1]
    return rows


def ask(rollout: Rollout, query: str, timeout: float = 30.0, **arguments: Any) -> ToolResult:
    """Makes a call of `sql` in a rollout."""
    return rollout.call("sql", {"query": query, **arguments}, timeout=timeout)


def seen(rollout: Rollout, query: str) -> list[list[Any]]:
    """Returns the rows that a rollout sees of a query."""
    return rows_of(answered(ask(rollout, query)), query)
