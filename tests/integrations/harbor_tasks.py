"""Small tasks in Harbor's format, of the image `terminal`, for tests with Harbor itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integrations.scripted_model import Scripts, terminal_step

REWARD = "/logs/verifier/reward.txt"
OFFLINE = {"cpus": 1, "memory_mb": 512, "allow_internet": False}
WAIT = 1.5
"""Seconds that the agent waits outside of the sandbox for what it started there."""


def write_tasks(folder: Path) -> None:
    """Writes all tasks.

    Args:
        folder: where they go.
    """
    _write(
        folder / "greet",
        "greet-42: write the greeting into /app/out, as the user who says it.",
        solution='echo "$GREETING" > /app/out; id -un >> /app/out\n',
        tests='[ "$(id -un)" = root ] && grep -q "^hello$" /app/out && grep -q "^games$" /app/out\n',
        agent={"user": "games"},
        environment={
            **OFFLINE,
            "env": {"GREETING": "hello"},
            "healthcheck": {"command": "chmod 777 /app", "timeout_sec": 20},
        },
    )
    _write(
        folder / "wait",
        "wait-42: start what writes /app/late, wait for it, and write its time into /app/seen.",
        solution="(sleep 0.5; echo late > /app/late) & sleep 1.5; cat /app/late > /app/seen\n",
        tests="[ -s /tests/data/expected ] && cmp /app/seen /tests/data/expected\n",
    )
    (folder / "wait/tests/data").mkdir()
    (folder / "wait/tests/data/expected").write_text("late\n")
    _write(
        folder / "apart",
        "apart-42: leave the answer as an artifact.",
        solution="echo 42 > /logs/artifacts/answer; echo secret > /app/only-here\n",
        tests='[ ! -e /app/only-here ] && [ "$(cat /logs/artifacts/answer)" = 42 ]\n',
        verifier={"environment_mode": "separate"},
    )
    steps = folder / "steps"
    _write(steps, "", solution="", tests="", steps=[{"name": "one"}, {"name": "two"}])
    for name, solution, tests in (
        ("one", "cp given /app/one\n", "cmp /app/one /app/given\n"),
        ("two", "cat /app/one > /app/two\n", "[ ! -e /tests/left ] && cmp /app/one /app/two\n"),
    ):
        _write_scripts(steps / "steps" / name, f"steps-42 {name}", solution, tests)
        (steps / "steps" / name / "workdir").mkdir()
        (steps / "steps" / name / "workdir/given").write_text(name)
    (steps / "steps/one/tests/left").touch()


SERVER = """
import signal, socket, sys
def end(*_):
    print("ends", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("begins", flush=True)
listener, count = socket.create_server(("127.0.0.2", 7000)), 0
while True:
    connection, _ = listener.accept()
    count += connection.recv(9) == b"add\\n"
    connection.sendall(b"%d\\n" % count)
    connection.close()
"""


def write_services_task(folder: Path) -> None:
    """Writes the task `counted`, in which a service keeps a number in its memory, which a verifier apart is to see.

    Args:
        folder: where it goes.
    """
    ask = "exec 3<>/dev/tcp/db/7000; echo {} >&3; cat <&3"
    _write(
        folder / "counted",
        "Count once.",
        solution=f"{ask.format('add')}\n",
        tests='[ "$(cat /evidence/count)" = 1 ] && ! [ -e /evidence/of-main ]\n',
        verifier={
            "environment_mode": "separate",
            "collect": [
                {"command": f"mkdir -p /evidence; bash -c '{ask.format('look')}' > /evidence/count", "service": "db"}
            ],
        },
        artifacts=[{"source": "/evidence", "service": "db"}],
    )
    services = {
        "db": {
            "image": "terminal",
            "command": ["python3", "-c", SERVER],
            "environment": {"OF_DB": "yes"},
            "healthcheck": {"test": ["CMD", "bash", "-c", ask.format("look")], "interval": "1s"},
        }
    }
    task = folder / "counted"
    (task / "image.yaml").write_text(json.dumps({"image": "terminal", "services": services}))
    (task / "environment/docker-compose.yaml").write_text("services: {}\n")  # Harbor wants one; image.yaml counts


def write_compose_task(folder: Path, base: str) -> None:
    """Writes the task `composed`: a Compose file, Dockerfiles, and an entrypoint that starts a server.

    Args:
        folder: where it goes.
        base: the image that the Dockerfiles start from, with Python.
    """
    fetch = "import sys, urllib.request as u; [print(u.urlopen(at).read()) for at in sys.argv[1:]]"
    _write(
        folder / "composed",
        "Fetch from both servers.",
        solution=f"python3 -c '{fetch}' http://localhost:8000/f http://db:9000/mine > /app/out\n",
        tests="grep -q served /app/out && grep -q of-db /app/out\n",
        agent={"user": "games"},
        verifier={"collect": [{"command": "mkdir /evidence; cp /mine /evidence", "service": "db"}]},
        environment={**OFFLINE, "env": {"GREETING": "hi"}},
        artifacts=[{"source": "/evidence", "service": "db"}],
    )
    task = folder / "composed"
    (task / "image.yaml").unlink()
    check = ["CMD", "python3", "-c", fetch, "http://db:9000/mine"]
    services = {
        "main": {"depends_on": {"db": {"condition": "service_healthy"}}},
        "db": {"build": "db", "healthcheck": {"test": check, "interval": "1s", "retries": 20}},
    }
    entry = '#!/bin/sh\necho started $GREETING\npython3 -m http.server 8000 --directory /srv &\nexec "$@"\n'
    files = {
        "entry.sh": entry,
        "Dockerfile": f"FROM {base}\nCOPY entry.sh /entry.sh\nRUN chmod 755 /entry.sh && echo served > /srv/f\n"
        'RUN mkdir /app && chmod 777 /app\nWORKDIR /app\nENTRYPOINT ["/entry.sh"]\n',
        "db/Dockerfile": f"FROM {base}\nRUN echo of-db > /mine\n"
        'CMD ["python3", "-m", "http.server", "9000", "--bind", "db"]\n',
        "docker-compose.yaml": json.dumps({"services": services}),
    }
    (task / "environment/db").mkdir()
    for name, text in files.items():
        (task / "environment" / name).write_text(text)


def write_troubled_tasks(folder: Path) -> None:
    """Writes tasks of which people must be told something.

    Args:
        folder: where they go.
    """
    nothing: dict[str, Any] = {"solution": "true\n", "tests": "true\n"}
    _write(folder / "no-image", "", **nothing, environment={**OFFLINE, "docker_image": "registry.invalid/none:1"})
    _write(folder / "several", "", **nothing)
    services = "services:\n  main:\n    build: .\n  other:\n    image: postgres\n"
    (folder / "several/environment/docker-compose.yaml").write_text(services)
    for name in ("no-image", "several"):
        (folder / name / "image.yaml").unlink()
        _write_scripts(folder / name, "", **nothing)
    _write(folder / "offline", "Ask the network.", solution="true\n", tests="exec 3<>/dev/tcp/example.org/80\n")
    _write(
        folder / "slow",
        "Take long.",
        solution="echo > /app/begun; sleep 60\n",
        tests="[ -e /app/begun ]\n",
        agent={"timeout_sec": 10},
    )
    _write(
        folder / "listed",
        "Fetch from the one host that may be reached.",
        solution="curl -s http://files.example/file > /app/file; ! curl -s http://elsewhere.example/file\n",
        tests="grep -q fetched /app/file && [ ! -e /app/elsewhere ]\n",
        environment={"network_mode": "allowlist", "allowed_hosts": ["files.example"]},
    )


def scripts() -> Scripts:
    """Returns what the model says in the tasks `greet` and `wait`, the second of which it fails once."""
    return {
        "greet-42": [
            terminal_step(("echo $GREETING > /app/out\n", 0.2), ("id -un >> /app/out\n", 0.2)),
            terminal_step(done=True),
            terminal_step(done=True),
        ],
        "wait-42": [
            terminal_step((f"(sleep {WAIT - 0.7}; echo late > /app/late) &\n", 0.1)),
            terminal_step(("cat /app/late\n", 0.2)),  # too early
            terminal_step(("", WAIT), ("cat /app/late > /app/seen\n", 0.2)),
            terminal_step(done=True),
            terminal_step(done=True),
        ],
    }


def _write(folder: Path, instruction: str, *, solution: str, tests: str, **settings: Any) -> None:
    (folder / "environment").mkdir(parents=True)
    (folder / "environment/Dockerfile").write_text("FROM scratch\n")  # Harbor wants one; image.yaml counts
    (folder / "image.yaml").write_text("image: terminal\n")
    agent, verifier = (
        {"timeout_sec": 120, **settings.get("agent", {})},
        {"timeout_sec": 60, **settings.get("verifier", {})},
    )
    tables = {"agent": agent, "verifier": verifier, "environment": settings.get("environment", OFFLINE)}
    lines = ['version = "1.0"', f"artifacts = {_toml(settings.get('artifacts', []))}"]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    for step in settings.get("steps", ()):
        lines += ["[[steps]]", *(f"{key} = {_toml(value)}" for key, value in step.items())]
    (folder / "task.toml").write_text("\n".join(lines) + "\n")
    if instruction:
        _write_scripts(folder, instruction, solution, tests)


def _write_scripts(folder: Path, instruction: str, solution: str, tests: str) -> None:
    for part, name, text in (
        (".", "instruction.md", instruction + "\n"),
        ("solution", "solve.sh", f"#!/bin/bash\n{solution}"),
        ("tests", "test.sh", f"#!/bin/bash\nif {{ {tests.rstrip()}; }}; then echo 1; else echo 0; fi > {REWARD}\n"),
    ):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / name).write_text(text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)
