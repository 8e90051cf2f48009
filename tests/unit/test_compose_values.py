"""Values of Compose files: those that Compose, a program in Go, makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.go_values import command_words, plain_value
from tvsnap.images.descriptions.spec import ImageSpec
from tvsnap.images.errors import ImageSpecError

TASK = "instruction: hello\nparser_name: pytest\nmax_agent_timeout_sec: 60\nmax_test_timeout_sec: 60\n"


def described(folder: Path, compose: str, **files: str) -> ImageSpec:
    """Returns what is read of a task of terminal-bench with a Compose file and further files."""
    folder.joinpath("Dockerfile").write_text("FROM debian:bookworm-slim\n")
    folder.joinpath("task.yaml").write_text(TASK)
    folder.joinpath("docker-compose.yaml").write_text(compose)
    for name, text in files.items():
        folder.joinpath(name).write_text(text)
    return load_source(folder)


@pytest.mark.parametrize(
    ("text", "told"),
    {
        "24.10": "24.1",
        "3.0": "3",
        "1e3": "1000",
        "1234567e5": "1.234567e+11",
        "1000000.0": "1e+06",
        "999999.5": "999999.5",
        "0.0001": "0.0001",
        "0.00001": "1e-05",
        "1e-7": "1e-07",
        "-0.0": "-0",
        "0.0": "0",
        ".5": "0.5",
        "5.": "5",
        "120.0": "120",
        "1e999": "1e999",
        "1.2.3": "1.2.3",
        ".": ".",
        "08": "8",
        "0755": "493",
        "0o17": "15",
        "0x1F": "31",
        "0b11": "3",
        "1_000": "1000",
        "+12": "12",
        "-5": "-5",
        "18446744073709551615": "18446744073709551615",
        "18446744073709551616": "1.8446744073709552e+19",
        "-9223372036854775809": "-9.223372036854776e+18",
        "1147053346671102335": "1147053346671102335",
        "12:30": "12:30",
        "23:59:59": "23:59:59",
        "yes": "yes",
        "Y": "Y",
        "on": "on",
        "tRue": "tRue",
        "1,5": "1,5",
        "2024-01-01": "2024-01-01 00:00:00 +0000 UTC",
        "2024-1-2 5:6:7.50": "2024-01-02 05:06:07.5 +0000 UTC",
        "2024-01-01T10:00:00Z": "2024-01-01 10:00:00 +0000 UTC",
        "2024-01-01T10:00:00+02:00": "2024-01-01 10:00:00 +0200 +0200",
        "2024-13-01": "2024-13-01",
        "2024-01-01 10:00": "2024-01-01 10:00",
        "24-01-01": "24-01-01",
    }.items(),
)
def test_scalars_are_printed_as_by_go(text: str, told: str) -> None:
    assert str(plain_value(text)) == told


def test_words_of_yaml() -> None:
    assert [plain_value(text) for text in ("", "~", "null", "True", "FALSE", "false")] == [None] * 3 + [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "words", "rest"),
    [
        ("python app.py && tail -f /dev/null", ["python", "app.py"], "&& tail -f /dev/null"),
        ("./serve --port 80; sleep infinity", ["./serve", "--port", "80"], "; sleep infinity"),
        ("./serve 2>&1", ["./serve"], ">&1"),
        ("sh -c 'a && b; c | d > e'", ["sh", "-c", "a && b; c | d > e"], ""),
        (r"""a "b\nc" 'd\e' f\ g '' """, ["a", "bnc", r"d\e", "f g", ""], ""),
        ("echo $(date now) `a;b`", ["echo", "$(date now)", "`a;b`"], ""),
        ("", [], ""),
    ],
)
def test_commands_are_split_as_by_compose(text: str, words: list[str], rest: str) -> None:
    assert command_words(text) == (words, rest)


@pytest.mark.parametrize("text", ["foo()", "--constraints=Label(a, true)", "a 'b", 'a "b', "a\\", "a )"])
def test_commands_that_compose_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        command_words(text)


def test_a_command_that_is_cut_is_noted(tmp_path: Path) -> None:
    spec = described(tmp_path, "services:\n  client:\n    build: .\n    command: serve && wait\n")
    assert spec.runs is not None
    assert spec.runs.command == ("serve",)
    assert any("drops what follows: && wait" in note for note in spec.notes)
    with pytest.raises(ImageSpecError, match="not quoted"):
        described(tmp_path, "services:\n  client:\n    build: .\n    command: f()\n")


def test_environment(tmp_path: Path) -> None:
    """A name alone has the value of `.env`, or is not set at all; files may refer to those before."""
    compose = """
name: My.Project
services:
  client:
    build: .
    env_file: [one.env, two.env]
    environment:
      AT: 12:30
      VERSION: 1.10
      QUOTED: "1.10"
      KNOWN:
      UNKNOWN:
      NAME: ${COMPOSE_PROJECT_NAME}
"""
    files = {".env": "\ufeffKNOWN=known\n", "one.env": "\ufeffA=1\nUNKNOWN=set\n", "two.env": "B=${A}2\nC=$KNOWN\n"}
    spec = described(tmp_path, compose, **files)
    wanted = {"AT": "12:30", "VERSION": "1.1", "QUOTED": "1.10", "KNOWN": "known", "NAME": "myproject"}
    assert {name: spec.env.get(name) for name in wanted} == wanted
    assert {name: spec.env.get(name) for name in "ABC"} == {"A": "1", "B": "12", "C": "known"}
    assert "UNKNOWN" not in spec.env
    (tmp_path / "_My Folder").mkdir()
    compose = "services:\n  client:\n    build: .\n    environment: ['NAME=${COMPOSE_PROJECT_NAME}']\n"
    assert described(tmp_path / "_My Folder", compose).env["NAME"] == "myfolder"
