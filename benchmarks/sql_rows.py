"""Compares what recorded SQL rollouts return through tvsnap with a plain MariaDB outside it, and with the recording.

    python -m benchmarks.sql_rows sql_rollouts.jsonl --image spider --dump spider_mysql.sql

Results are compared as multisets of rows, errors by the system's own number. The plain server is the host's `mariadbd`
(Debian's mariadb-server-core and mariadb-client-core) with the image's settings, in a directory of its own, loaded from
the same dump.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pymysql
import pymysql.constants.CLIENT
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tvsnap.cache import Cache
from tvsnap.model.errors import MachineLacks, TvsnapError
from tvsnap.model.limits import MIB, Limits
from tvsnap.plugins.sql.databases.dumps import read_mysql
from tvsnap.plugins.sql.statements import effects
from tvsnap.upkeep.rollout_files import PlannedRollout, read_rollouts

MAX_ROWS = 100_000
TIMEOUT = 120.0
OUTPUT = 64 * MIB
DIGITS = 6
"""Significant digits to which floating-point numbers that were recorded as text are compared."""
SETTINGS = Path("etc/mysql/mariadb.conf.d/99-tvsnap.cnf")
"""In an image: the server's. Where several answers are right, its buffers' sizes decide which one comes first."""
PLACES = ("user", "datadir", "tmpdir", "socket", "pid-file", "log-error")
"""Settings that are the sandbox's own."""

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement returned: rows, or an error, or neither.

    Attributes:
        rows: as a multiset; None if it returns none.
        error: the database system's number for the error; empty if there is none.
    """

    rows: Rows | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One recorded call, with all that came of it.

    Attributes:
        query: the text.
        ours, plain: through tvsnap, and without it.
        observed: as it was recorded, elsewhere; None if that cannot be read.
    """

    query: str
    ours: Answer
    plain: Answer
    observed: Answer | None


def main() -> int:
    """Runs the comparison; returns 0 if every statement agrees with the plain client."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql_rows", description=__doc__.split("\n", 1)[0])
    parser.add_argument("rollouts", type=Path, help="a rollout file; its calls' `observed` is what was recorded")
    parser.add_argument("--image", required=True, help="the image with the databases")
    parser.add_argument("--dump", required=True, type=Path, help="the MySQL dump that the image was made from")
    parser.add_argument("--home", type=Path, help="the data directory; by default tvsnap's own")
    parser.add_argument("--limit", type=int, help="only so many rollouts")
    parser.add_argument("--show", type=int, default=3, help="examples of each class of difference")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server and its directory go then, too
    console = Console(width=110, highlight=False)
    try:
        rollouts, broken = read_rollouts([options.rollouts])
        if broken:
            raise TvsnapError(str(broken[0]))
        statements = list(_run(rollouts[: options.limit], options.image, options.dump, options.home))
    except TvsnapError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    figures = _report(statements, console, options.show)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if figures["plain"]["agree"] == figures["plain"]["statements"] else 1


def _run(rollouts: Sequence[PlannedRollout], image: str, dump: Path, home: Path | None) -> Iterator[Statement]:
    with (
        Cache(home, limits=Limits(output=OUTPUT)) as cache,
        _plain_server(dump, cache.images.get(image).rootfs / SETTINGS) as plain,
    ):
        for planned in track(rollouts, "comparing", console=Console(stderr=True)):
            database = str(planned.extra.get("database", ""))
            queries = [str(step.call.arguments["query"]) for step in planned.calls]
            with cache.rollout(image, task=planned.task) as rollout:
                ours = [
                    _our_answer(
                        rollout.call(
                            "sql", {"query": query, "database": database, "max_rows": MAX_ROWS}, timeout=TIMEOUT
                        ).output
                    )
                    for query in queries
                ]
            others = plain.run(queries, database)
            for step, query, our, other in zip(planned.calls, queries, ours, others, strict=True):
                yield Statement(query, our, other, _observed(step.extra.get("observed")))


class PlainServer:
    """A MariaDB server of the host, put back to what was loaded after whoever writes."""

    def __init__(self, directory: Path, settings: Path) -> None:
        """
        Args:
            directory: a new one, for all of it.
            settings: the server's in the image.
        """
        self._directory = directory
        self._defaults = f"--defaults-file={directory / 'cnf'}"
        lines = settings.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines[lines.index("[mariadbd]") :] if line.partition("=")[0].strip() not in PLACES]
        (directory / "cnf").write_text("\n".join(kept) + "\n", encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        """Where it listens."""
        return str(self._directory / "socket")

    def initialise(self, scripts: Sequence[Path]) -> None:
        """Makes the data directory and loads dumps."""
        install = ["mariadb-install-db", self._defaults, f"--datadir={self._directory / 'data'}", "--user=root"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, capture_output=True)
        self.start()
        for script in scripts:
            with script.open("rb") as stream:
                subprocess.run(["mariadb", f"--socket={self.socket}", "--user=root"], stdin=stream, check=True)
        # As in the image: where several answers are right, the statistics decide which one a plan comes to first.
        analyze = ["mariadb-check", f"--socket={self.socket}", "--user=root", "--analyze", "--all-databases"]
        subprocess.run(analyze, check=True, capture_output=True)
        self.stop()
        shutil.copytree(self._directory / "data", self._directory / "loaded")
        self.start()

    def start(self) -> None:
        """Starts the server and waits for it."""
        command = ["mariadbd", self._defaults, f"--datadir={self._directory / 'data'}", f"--socket={self.socket}"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--user=root", f"--pid-file={self._directory / 'pid'}"], stdout=log, stderr=log
            )
        for _ in range(300):
            with contextlib.suppress(pymysql.err.OperationalError):
                self._connect("").close()
                return
            time.sleep(0.1)
        raise TvsnapError(f"mariadbd does not start: {(self._directory / 'log').read_text()[-1000:]}")

    def stop(self) -> None:
        """Ends the server."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def run(self, queries: Sequence[str], database: str) -> list[Answer]:
        """Runs a rollout's statements in a connection of its own."""
        connection = self._connect(database)
        with connection:
            answers = [self._answer(connection, query) for query in queries]
        kinds = [effects(query, "mariadb").kind for query in queries]
        if any(kind != "read" and not answer.error for kind, answer in zip(kinds, answers, strict=True)):
            self.stop()
            shutil.rmtree(self._directory / "data")
            shutil.copytree(self._directory / "loaded", self._directory / "data")
            self.start()
        return answers

    def _answer(self, connection: Any, query: str) -> Answer:
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                rows = cursor.fetchall() if cursor.description else None
                while cursor.nextset():
                    pass
        except pymysql.err.MySQLError as error:
            return Answer(error=str(error.args[0]))
        return Answer(None if rows is None else _multiset(rows))

    def _connect(self, database: str) -> Any:
        return pymysql.connect(
            unix_socket=self.socket,
            user="root",
            database=database or None,
            charset="utf8mb4",
            autocommit=True,
            client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
        )


@contextlib.contextmanager
def _plain_server(dump: Path, settings: Path) -> Iterator[PlainServer]:
    for program in ("mariadbd", "mariadb-install-db", "mariadb"):
        if shutil.which(program) is None:
            raise MachineLacks(f"{program} is missing on this host (mariadb-server-core, mariadb-client-core)")
    directory = Path(tempfile.mkdtemp(prefix="tvsnap-rows-"))
    server = PlainServer(directory, settings)
    try:
        scripts = directory / "scripts"
        scripts.mkdir()
        server.initialise([path for _, path in read_mysql(dump, scripts, "mariadb").scripts])
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _our_answer(output: str) -> Answer:
    said = json.loads(output)
    if "error" in said:
        number = re.match(r"ERROR (\d+)", said["error"])
        return Answer(error=number[1] if number else said["error"])
    last = said["results"][-1] if "results" in said else said
    return Answer(_multiset(last["rows"]) if "rows" in last else None)


def _observed(text: object) -> Answer | None:
    """Returns what was recorded: the text of a Python list of tuples, or an error in words."""
    if not isinstance(text, str):
        return None
    if text.startswith("Error"):
        return Answer(error=text)
    try:
        value = _Literal().visit(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return None
    return Answer(_multiset(value)) if isinstance(value, list) else None


class _Literal(ast.NodeVisitor):
    """Evaluates literals, `Decimal(...)` and `datetime.x(...)`, and nothing else."""

    def visit_Constant(self, node: ast.Constant) -> object:
        return node.value

    def visit_List(self, node: ast.List) -> list[object]:
        return [self.visit(item) for item in node.elts]

    def visit_Tuple(self, node: ast.Tuple) -> tuple[object, ...]:
        return tuple(self.visit(item) for item in node.elts)

    def visit_Set(self, node: ast.Set) -> str:
        return ",".join(sorted(str(self.visit(item)) for item in node.elts))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> object:
        if not isinstance(node.op, ast.USub):
            raise ValueError("no literal")
        return -self.visit(node.operand)

    def visit_Call(self, node: ast.Call) -> object:
        makers: Mapping[str, Any] = {
            "Decimal": Decimal,
            "datetime.date": datetime.date,
            "datetime.datetime": datetime.datetime,
            "datetime.timedelta": datetime.timedelta,
            "bytearray": bytes,
        }
        maker = makers[ast.unparse(node.func)]
        named = {word.arg: self.visit(word.value) for word in node.keywords if word.arg}
        return maker(*(self.visit(item) for item in node.args), **named)

    def generic_visit(self, node: ast.AST) -> object:
        raise ValueError("no literal")


def _multiset(rows: Any) -> Rows:
    return Counter(tuple(_value(value) for value in row) for row in rows)


def _value(value: Any) -> Any:
    """Returns a value in one form for all three: numbers by what they are worth, all else as text."""
    if isinstance(value, dict) and "base64" in value:
        import base64

        value = base64.b64decode(value["base64"])
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, (datetime.date, datetime.datetime, datetime.timedelta)):
        value = str(value)
    if value is None:
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    return f"{number:.{DIGITS}g}" if number.is_finite() else str(value)


def _report(statements: Sequence[Statement], console: Console, examples: int) -> dict[str, Any]:
    differing = [one for one in statements if one.ours != one.plain]
    console.print(f"{len(statements):,} statements; {len(statements) - len(differing):,} agree with the plain client")
    for one in differing:
        console.print(f"  [red]differs[/]: {_class(one.ours, one.plain, one.query)}")
        console.print(f"         {' '.join(one.query.split())[:95]}", markup=False)
    selects = [one for one in statements if _select(one.query) and _recorded(one)]
    simple = [one for one in selects if not re.search(r"\blimit\b|\bgroup\s+by\b|information_schema", one.query, re.I)]
    table = Table(box=None, header_style="bold")
    for title in ("SELECTs that returned rows when recorded", "n", "ours agree", "plain agrees"):
        table.add_column(title, justify="left" if title.startswith("SELECT") else "right")
    figures: dict[str, Any] = {
        "plain": {"statements": len(statements), "agree": len(statements) - len(differing)},
    }
    for name, chosen in (("simple", simple), ("all", selects)):
        ours = sum(one.ours.rows == _recorded(one) for one in chosen)
        plain = sum(one.plain.rows == _recorded(one) for one in chosen)
        figures[name] = {"n": len(chosen), "ours": ours, "plain": plain}
        what = "without LIMIT, GROUP BY, information_schema" if name == "simple" else "all"
        share = [f"{100 * part / max(1, len(chosen)):.2f} %" for part in (ours, plain)]
        table.add_row(what, f"{len(chosen):,}", *share)
    console.print(table)
    classes: dict[str, list[Statement]] = {}
    for one in selects:
        if one.ours.rows != _recorded(one):
            classes.setdefault(_class(one.ours, one.observed, one.query), []).append(one)
    console.print("where ours and the recording differ:")
    for name, found in sorted(classes.items(), key=lambda item: -len(item[1])):
        console.print(f"  {len(found):5,}  {name}", markup=False)
        for one in found[:examples]:
            console.print(f"         {' '.join(one.query.split())[:95]}", markup=False)
    figures["classes"] = {name: len(found) for name, found in classes.items()}
    return figures


def _recorded(one: Statement) -> Rows | None:
    return one.observed.rows if one.observed else None


def _select(query: str) -> bool:
    return query.lstrip("( \n\t").upper().startswith("SELECT")


def _class(ours: Answer, theirs: Answer | None, query: str) -> str:
    """Returns in words in what way a result is another than someone else's."""
    rows, others = ours.rows, theirs.rows if theirs else None
    text = query.lower()
    if ours.error:
        return f"error {ours.error} now"
    if rows is None or others is None:
        return "no rows on one side"
    if "information_schema" in text:
        return "about the server itself (information_schema)"
    if sum(rows.values()) != sum(others.values()):
        return "another number of rows"
    if re.search(r"\blimit\b", text):
        return "LIMIT without one right answer (ties, or no order)"
    if re.search(r"\bgroup\s+by\b", text):
        return "GROUP BY with columns that are not grouped"
    if sorted(len(row) for row in rows) != sorted(len(row) for row in others):
        return "another number of columns"
    return "other values"


if __name__ == "__main__":
    sys.exit(main())
