"""What is compiled is as hard to misuse as its kind allows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.native.building import NATIVE
from tvsnap.host import native

GUARDED = (native.INIT, native.LAUNCH, native.REWIND, native.LOOK)
"""Of a C library."""
ALONE = (native.FIXED, native.CRIU_PLUGIN)
"""Of none."""


def elf(option: str, file: Path) -> str:
    """Returns what readelf says."""
    return subprocess.run(["readelf", "-W", option, str(file)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("file", [*GUARDED, *ALONE], ids=lambda file: file.name)
def test_nothing_that_is_written_can_be_executed(file: Path) -> None:
    headers = [line.split() for line in elf("-l", file).splitlines()]
    flags = {words[0]: "".join(words[6:-1]) for words in headers if words and words[0] in ("LOAD", "GNU_STACK")}
    assert flags["GNU_STACK"] == "RW"
    for words in headers:
        if words and words[0] == "LOAD":
            assert not {"W", "E"} <= set("".join(words[6:-1])), words


@pytest.mark.parametrize("file", GUARDED, ids=lambda file: file.name)
def test_tables_are_read_only_once_it_runs(file: Path) -> None:
    assert "GNU_RELRO" in elf("-l", file)
    if ".so" in file.suffixes:
        assert re.search(r"\bNOW\b", elf("-d", file))
    else:  # static: nothing is looked up later
        assert "There is no dynamic section" in elf("-d", file)


@pytest.mark.parametrize("file", GUARDED, ids=lambda file: file.name)
def test_an_overwritten_stack_is_noticed(file: Path) -> None:
    assert "__stack_chk_fail" in elf("-s", file)


def test_what_looks_within_our_own_process_cannot_end_it() -> None:
    lines = [line.split() for line in elf("--dyn-syms", native.LOOK).splitlines()]
    used = {words[7].partition("@")[0] for words in lines if "UND" in words and len(words) > 7}
    assert {"malloc", "openat"} & used
    assert used.isdisjoint(("_exit", "_Exit", "exit", "abort", "fork", "fchdir", "setrlimit", "setresuid", "setfsuid"))


@pytest.mark.parametrize("file", [native.INIT, native.LAUNCH], ids=lambda file: file.name)
def test_programs_need_nothing_of_an_image(file: Path) -> None:
    assert "INTERP" not in elf("-l", file)


def test_signals_are_sent_by_descriptors_of_processes() -> None:
    """A bare number may be another process's by then. The signal 0 is none: it asks whether the number is taken."""
    found = []
    for file in sorted(NATIVE.glob("*/*.c")):
        if file.parent.name == "criu":
            continue  # parts of CRIU's own files
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
        found += [
            f"{file.name}: {call}" for call in re.findall(r"\b(?:kill|tgkill|tkill|killpg|sigqueue)\([^;]*;", text)
        ]
        found += [f"{file.name}: {call}" for call in re.findall(r"\bSYS_(?:kill|tgkill|tkill)\b", text)]
    assert found == ["proc.c: kill(pid, 0) == 0;"]
