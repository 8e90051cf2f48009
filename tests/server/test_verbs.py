"""Verbs of the command line that ask a server print what they print of its data directory."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import tvsnap
from cli.main import make_app
from tests.conformance.helpers import eventually
from tests.server.conftest import Server, start
from tests.small_image import build_small_image
from tvsnap.graph import PROOF_APART
from tvsnap.images import Image

ROOT = Path(__file__).parents[2]


def verb(*words: str, **variables: str) -> tuple[int, str]:
    """Returns the exit status and the output of a command line, which runs in this process."""
    ran = CliRunner().invoke(make_app(), list(words), env=variables, prog_name="tvsnap")
    return ran.exit_code, ran.stdout + ran.stderr


def program(*words: str, typed: str = "", **variables: str) -> tuple[int, str]:
    """Returns the same of a process of its own, to which something is typed."""
    command = [sys.executable, "-m", "tests.server.main", *words]
    env = {**os.environ, **variables}
    ran = subprocess.run(command, input=typed, capture_output=True, text=True, cwd=ROOT, env=env)
    return ran.returncode, ran.stdout + ran.stderr


def _tell_as_often(state: str, words: Sequence[str], *places: Sequence[str]) -> bool:
    """Returns whether a verb tells of a state in all places as often; a snapshot may just have come."""
    told = [json.dumps(json.loads(verb(words[0], *place, *words[1:])[1])).count(state) for place in places]
    return min(told) == max(told) > 0


def test_verbs_of_a_server(server: Server, server_home: Path) -> None:
    salt = secrets.token_hex(4)
    there = {"TVSNAP_URL": server.url}
    calls = ("-c", "cd /tmp; echo one > f", "-c", "echo two >> f; cat f; touch $'no utf-8: \\xff'")
    status, text = verb("run", "terminal", *calls, "--task", salt, "--salt", salt, "--json", **there)
    assert status == 0, text
    made: dict[str, Any] = json.loads(text)
    state = made["state"]
    assert "two" in json.dumps(made["calls"][1])
    here = ("--home", str(server_home))
    for words in (
        ("tree", "--task", salt, "--json"),
        ("show", state[:12], "--json"),
        ("rollouts", "--task", salt, "--json"),
        ("show", made["rollout"], "--json"),
        ("stats", "--by", "task", "--task", salt, "--json"),
        ("diff", f"{state[:12]}~", state[:12], "--patch", "--json"),
    ):
        asked, looked = verb(words[0], "--url", server.url, *words[1:]), verb(words[0], *here, *words[1:])
        assert asked[0] == looked[0] == 0, asked[1] + looked[1]
        first, second = json.loads(asked[1]), json.loads(looked[1])
        assert first.keys() == second.keys()
        if words[0] == "diff":
            for found in (first, second):  # each looks in forks of its own, where times of files may differ
                found["files"] = [(file["path"], file["kind"], file["patch"]) for file in found["files"]]
            assert first == second
            assert [path for path, *_ in first["files"]] == ["/tmp/f", "/tmp/no utf-8: \udcff"]
        elif words[0] == "stats":
            assert first == second
            assert (first["groups"][0]["key"], first["groups"][0]["calls"]) == (salt, 2)
        else:
            eventually(partial(_tell_as_often, state, words, ("--url", server.url), here))
    for kind in ("--svg", "--html", "--dot"):
        asked, looked = (verb("tree", *at, "--task", salt, kind, "-") for at in (("--url", server.url), here))
        assert asked == looked
        assert (asked[0], state[:12] in asked[1]) == (0, True)
    status, text = verb("report", "--url", server.url, "-")
    assert (status, "Hit rate by epoch" in text) == (0, True)
    assert verb("exec", "--url", f"unix:{server.socket}", state[:12], "cat f; exit 7") == (7, "one\ntwo\n")
    status, text = program("stats", "--json", **there)
    assert (status, json.loads(text)["home"]) == (0, str(server_home))


def test_output_that_was_cut_says_so(server: Server) -> None:
    with tvsnap.connect(server.url) as client, client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp"})
        state = rollout.state
        log = rollout.grade(tvsnap.Verifier("seq 200000; echo 1")).log
    assert "output cut here" in log
    assert set(log.partition("\n[... output cut")[0].split()[:-1]) < set(map(str, range(1, 200001)))
    status, text = verb("exec", "--url", server.url, state, "seq 200000")
    assert (status, "is cut in the middle" in text) == (0, True)


def test_a_token_of_two_lines_is_none(server: Server) -> None:
    status, text = verb("stats", "--url", server.url, TVSNAP_TOKEN="a" * 32 + "\n" + "b" * 32)
    assert (status, "one line of printable ASCII" in text) == (2, True)


def test_rollout_files_are_replayed_on_a_server(server: Server, tmp_path: Path) -> None:
    calls = [{"name": "bash", "arguments": {"command": command}} for command in ("cd /tmp; echo 1 > f", "cat f")]
    (tmp_path / "rollouts").write_text(json.dumps({"task": "t", "rollout": "r", "calls": calls}) + "\n")
    words = ("replay", str(tmp_path / "rollouts"), "--image", "terminal", "--salt", secrets.token_hex(4), "--json")
    hits = 0
    for passes in range(6):  # a call that is answered from a snapshot, which may go, is not made a second time yet
        time.sleep(PROOF_APART)
        status, text = verb(*words, TVSNAP_URL=server.url)
        assert status == 0, text
        report = json.loads(text)
        assert (report["calls"], report["failed"]) == (2, [])
        hits = report["hits"]
        assert not hits or passes
        assert report["executed"] + hits == 2
        assert "forks" in report
        if hits == 2 and passes >= 2:
            break
    assert hits == 2, "made twice alike, it needs no snapshot"
    for option in (("--no-cache",), ("--policy", "eager"), ("--max-disk", "1G")):
        status, text = verb(*words, *option, TVSNAP_URL=server.url)
        assert (status, len(text.splitlines())) == (2, 1)
        assert option[0].removesuffix("disk") in text


def test_lines_are_run_in_a_fork_of_a_state_of_a_server(server: Server) -> None:
    with tvsnap.connect(server.url) as client, client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp; X=kept"})
        state = rollout.state
    assert program("shell", state[:16], "--url", server.url, typed="echo $X; pwd\necho on\n") == (0, "kept\n/tmp\non\n")


def test_images_of_a_server(server: Server, server_home: Path, terminal_image: Image, tmp_path: Path) -> None:
    small = build_small_image(terminal_image, server_home).name
    shown = verb("image", "show", "terminal", "--json", TVSNAP_URL=server.url)
    assert shown == verb("--home", str(server_home), "image", "show", "terminal", "--json")
    status, text = verb("image", "ls", "--json", TVSNAP_URL=server.url)
    assert "terminal" in [image["name"] for image in json.loads(text)]
    folder = tmp_path / f"sent-{secrets.token_hex(4)}"
    folder.mkdir()
    (folder / "image.yaml").write_text(f"image: {small}\nfiles: [{{source: greeting, dest: /etc/motd}}]\n")
    (folder / "greeting").write_text(f"{folder.name}\n")  # no other image has the same contents, and so is the same
    status, text = verb("image", "build", f"{folder}/", "--json", "--url", server.url)
    assert status == 0, text
    built, _ = json.JSONDecoder().raw_decode(text)  # how it went follows, if it took long
    assert built["name"] == folder.name
    assert verb("exec", "--url", server.url, _root(server, folder.name), "cat /etc/motd") == (0, f"{folder.name}\n")
    status, text = verb("image", "rm", folder.name, TVSNAP_URL=server.url)
    assert (status, "on which 1 state" in text) == (2, True), text
    status, text = verb("image", "rm", folder.name, "--yes", TVSNAP_URL=server.url)
    assert (status, text.splitlines()[0]) == (0, f"removed {folder.name}")
    assert f"what was done on {folder.name} stays, of no use without it: 1 state" in text
    status, text = verb("image", "rm", "terminal", folder.name, "--yes", TVSNAP_URL=server.url)
    assert (status, len(text.splitlines())) == (3, 1), "not even the one that is there"
    assert verb("image", "show", "terminal", TVSNAP_URL=server.url)[0] == 0


def test_a_state_of_a_server_is_exported(
    server: Server, server_home: Path, terminal_image: Image, tmp_path: Path
) -> None:
    image = build_small_image(terminal_image, server_home).name
    with tvsnap.connect(server.url) as client, client.rollout(image, salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp; echo exported > f"})
        rollout.snapshot_if_idle()
        state, digest = rollout.state, client.images.get(image).digest
    for name in (state[:16], image):
        exported: list[Any] = []
        for words in (("--url", server.url), ("--home", str(server_home))):
            path = tmp_path / f"{name}-{len(exported)}"
            status, text = verb("image", "export", name, "-o", f"{path}/", "--json", *words)
            assert status == 0, text
            exported.append(json.loads((path / "index.json").read_text()))
            assert json.loads(text)["state"] == (state if name != image else None)
        assert exported[0] == exported[1], "the same image, made here and there"
    assert digest


def test_what_was_recorded_is_verified_and_forgotten(server: Server, server_home: Path) -> None:
    task = secrets.token_hex(4)
    with tvsnap.connect(server.url) as client, client.rollout("terminal", task=task, salt=task) as rollout:
        rollout.call("bash", {"command": "cd /tmp; echo same > f; cat f"})
        rollout.call("bash", {"command": "cat /proc/sys/kernel/random/uuid"})
        state = rollout.state
    there = ("--url", server.url, "--json")
    status, text = verb("verify", "--task", task, "--all", *there)
    report = json.loads(text)
    assert (status, report["candidates"], report["checked"], report["same"]) == (4, 2, 2, 1), text
    (found,) = report["differences"]
    assert "uuid" in json.dumps(found)
    status, text = verb("verify", "--task", task, "--all", *there)
    assert (status, json.loads(text)["candidates"]) == (0, 1), "what differed answers nothing any more"
    assert verb("verify", "--task", "none", *there)[0] == 3
    for words in (("--task", task), (state[:16],)):
        status, text = verb("forget", *words, "--dry-run", *there)
        assert (status, json.loads(text)["states"]) == (0, 2 if "--task" in words else 1), text
    assert verb("show", state, *there)[0] == 0
    status, text = verb("forget", "--task", task, "--yes", *there)
    assert (status, json.loads(text)["calls"]) == (0, 2), text
    assert verb("show", state, *there)[0] == 3
    status, text = verb("forget", "--task", task, "--yes", *there)
    assert (status, json.loads(text)["states"]) == (0, 0), "nothing is left"
    assert verb("show", state, "--home", str(server_home))[0] == 3
    assert verb("forget", *there)[0] == 2


def _root(server: Server, image: str) -> str:
    with tvsnap.connect(server.url) as client, client.rollout(image) as rollout:
        return rollout.root


def test_verbs_that_ask_no_server_say_so(server: Server) -> None:
    for words in (("gc",), ("doctor",), ("demo",), ("setup",), ("serve",), ("image", "base", "x", "x")):
        status, text = verb(*words, "--url", server.url)
        assert (status, len(text.splitlines())) == (2, 1), text
        assert "asks no server: leave out --url" in text


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
