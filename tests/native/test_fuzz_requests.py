"""The parser of requests, built with sanitizers, reads what no client of ours would send."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.building import HERE, NATIVE, SANITIZERS, build
from tests.native.header import read_header
from tests.native.wire import EXCHANGES, recorded

INPUTS = int(os.environ.get("TVSNAP_PARSER_FUZZ_INPUTS", "250000"))
"""For each of the seeds: a few seconds, and the same inputs on each machine."""
LIMIT = 60 + INPUTS / 1000
"""Seconds; no machine is as slow."""
SEED = int(os.environ.get("TVSNAP_PARSER_FUZZ_SEED", "1"))
SEEDS = range(SEED, SEED + 4)
PARSER = [NATIVE / "init/frames.c", NATIVE / "init/basics.c", NATIVE / "init/buffers.c"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="module")
def program(directory: Path) -> Path:
    return build(directory / "fuzz_requests", HERE / "fuzz_requests.c", *PARSER, flags=SANITIZERS)


@pytest.fixture(scope="module")
def corpus(directory: Path) -> list[Path]:
    """Real frames: each exchange of the real client, and all of them one after the other."""
    frames = recorded()
    files = []
    for number, data in enumerate((*frames.values(), b"".join(frames.values()))):
        files.append(directory / f"{number}.frames")
        files[-1].write_bytes(data)
    return files


def run(program: Path, *arguments: str | Path, limit: float) -> subprocess.CompletedProcess[str]:
    """Runs the fuzzer; a report of a sanitizer ends it with another status than 0."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit, env=environment)


def test_real_frames_are_good(program: Path, corpus: list[Path]) -> None:
    """What the client sends, the parser takes for what was meant: the types, and no fault."""
    letters = read_header().enums["request_type"]
    expected = [letters[name] for exchange in EXCHANGES.values() for name in exchange.requests]
    told = run(program, "check", corpus[-1], limit=60)
    assert told.returncode == 0, told.stderr
    lines = [line.split() for line in told.stdout.splitlines()]
    assert [line[0] for line in lines] == expected
    assert {line[2] for line in lines} == {"good"}


@pytest.mark.parametrize("seed", SEEDS)
def test_changed_frames_do_no_harm(program: Path, corpus: list[Path], seed: int) -> None:
    told = run(program, "fuzz", str(INPUTS), str(seed), *corpus, limit=LIMIT)
    assert told.returncode == 0, f"seed {seed}: {told.stdout}\n{told.stderr}"
    words = told.stdout.split()
    counts = {name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)}
    assert counts["inputs"] == INPUTS
    reached = {"too-long", "good", "malformed", "unknown", *read_header().enums["request_type"].values()}
    assert all(counts.get(str(name), 0) > 0 for name in reached), counts


@pytest.mark.parametrize(
    ("check", "without"),
    [
        ("if (size > length - at) return false;", ""),
        ("if (length - at < LENGTH_BYTES || r->count == MAX_FIELDS)", "if (r->count == MAX_FIELDS)"),
        ("|| r->arguments > r->count - EXECUTE_FIXED_FIELDS ", ""),
        ("if (length - LENGTH_BYTES < frame->length) return FRAME_PARTIAL;", ""),
    ],
)
def test_a_check_that_is_missing_is_found(directory: Path, corpus: list[Path], check: str, without: str) -> None:
    """The fuzzer itself: without one of the parser's checks, it does not come to its end."""
    text = PARSER[0].read_text()
    assert check in text
    (directory / "frames.c").write_text(text.replace(check, without))
    inputs = [HERE / "fuzz_requests.c", directory / "frames.c", *PARSER[1:]]
    told = run(build(directory / "planted", *inputs, flags=SANITIZERS), "fuzz", str(INPUTS), "1", *corpus, limit=LIMIT)
    assert told.returncode != 0, told.stdout
    assert "Sanitizer" in told.stderr or "wrong: " in told.stderr
