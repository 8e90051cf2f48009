"""`python3 sql.pyz start ENGINE SOCKET` serves a session in the background; `load ENGINE FILE` fills a new image."""

from __future__ import annotations

import importlib
import os
import sys

from .engine import Engine, EngineFailed

ENGINES = {"postgres": "Postgres", "mariadb": "MariaDB", "sqlite": "SQLite"}


def engine(name: str) -> Engine:
    """Returns an engine by name; its driver is imported only now."""
    module = importlib.import_module(f"{__package__}.{name}")
    found: Engine = getattr(module, ENGINES[name])()
    return found


def start(name: str, path: str) -> None:
    """Starts the engine and a process that serves its session; returns once that answers."""
    from .session import Session

    found = engine(name)
    ready, said = os.pipe()
    if os.fork():
        os.close(said)
        with os.fdopen(ready) as stream:
            trouble = stream.read()
        if trouble != "ready":
            raise EngineFailed(trouble or "it ended while it was starting")
        return
    os.close(ready)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    with os.fdopen(said, "w") as stream:
        try:
            found.start()
            session = Session(found)
            listener = session.listen(path)
        except BaseException as error:
            stream.write(str(error) or type(error).__name__)
            raise
        stream.write("ready")
    session.serve(listener)


def main() -> int:
    """Does what the command line says."""
    try:
        if sys.argv[1] == "start":
            start(*sys.argv[2:])
        else:
            from .loading import load

            load(engine(sys.argv[2]), sys.argv[3])
    except EngineFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
