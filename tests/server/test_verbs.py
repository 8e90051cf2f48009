"""Verbs of the command line that ask a server print what they print of its data directory."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.server.conftest import Server, start

ROOT = Path(__file__).parents[2]


def verb(*words: str, **variables: str) -> tuple[int, str]:
    """Returns the exit status and the output of a command line."""
    command = [sys.executable, "-m", "tests.server.main", *words]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables})
    return ran.returncode, ran.stdout + ran.stderr


def test_verbs_of_a_server(server: Server, server_home: Path) -> None:
    salt = secrets.token_hex(4)
    there = {"TVSNAP_URL": server.url}
    calls = ("-c", "cd /tmp; echo one > f", "-c", "echo two >> f; cat f")
    status, text = verb("run", "terminal", *calls, "--task", salt, "--salt", salt, "--json", **there)
    assert status == 0, text
    made: dict[str, Any] = json.loads(text)
    state = made["state"]
    assert "two" in json.dumps(made["calls"][1])
    here = ("--home", str(server_home))
    for words in (
        ("tree", "--task", salt, "--json"),
        ("show", state[:12], "--json"),
        ("diff", f"{state[:12]}~", state[:12], "--patch", "--json"),
    ):
        asked, looked = verb(words[0], "--url", server.url, *words[1:]), verb(words[0], *here, *words[1:])
        assert asked[0] == looked[0] == 0, asked[1] + looked[1]
        first, second = json.loads(asked[1]), json.loads(looked[1])
        assert first.keys() == second.keys()
        if words[0] == "diff":
            assert first == second
        else:
            assert json.dumps(first).count(state) == json.dumps(second).count(state) > 0
    assert verb("exec", "--url", f"unix:{server.socket}", state[:12], "cat f; exit 7") == (7, "one\ntwo\n")
    status, text = verb("stats", "--json", **there)
    assert (status, json.loads(text)["home"]) == (0, str(server_home))


def test_what_goes_wrong_is_told_in_one_line(server: Server, tmp_path: Path) -> None:
    for words, wanted, part in (
        (("show", "ffff"), 3, "ffff"),
        (("run", "none", "-c", "true"), 3, "none"),
        (("run", "terminal", "-c", "true", "--policy", "eager"), 2, "--policy"),
    ):
        status, text = verb(*words, TVSNAP_URL=server.url)
        assert (status, len(text.splitlines())) == (wanted, 1), text
        assert part in text
    status, text = verb("tree", "--url", f"unix:{tmp_path}/none")
    assert (status, len(text.splitlines())) == (1, 1)
    assert "tvsnap serve" in text
    status, text = verb("tree", "--url", "ftp://here")
    assert status == 2
    assert "http://host:port" in text


def test_the_token_is_a_variable(server_home: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("t" * 32)
    tokens.chmod(0o600)
    guarded = start(server_home, "--token-file", str(tokens), socket="guarded.sock")
    try:
        assert verb("tree", "--url", guarded.url)[0] == 2
        assert verb("tree", "--url", guarded.url, TVSNAP_TOKEN="t" * 32)[0] == 0
    finally:
        assert guarded.stop() == 0
