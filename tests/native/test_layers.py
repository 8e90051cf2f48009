"""C files lie in layers: no two of them call each other, by whatever way round."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.native.building import NATIVE, sources, variable

FOLDERS = ("init", "launch", "look", "preload", "rewind")


def symbols(file: Path) -> tuple[set[str], set[str]]:
    """Returns what an object file defines for others and what it uses of others."""
    listing = subprocess.run(["nm", "--extern-only", str(file)], capture_output=True, text=True, check=True).stdout
    pairs = [line.split()[-2:] for line in listing.splitlines()]
    used = {name for kind, name in pairs if kind in "Uwv"}
    return {name for kind, name in pairs if kind not in "Uwv"}, used


def calls(files: list[Path], directory: Path) -> dict[str, set[str]]:
    """Compiles C files; returns which of them each one uses functions or variables of."""
    directory.mkdir(exist_ok=True)
    objects = {file.stem: directory / f"{file.stem}.o" for file in files}
    for file in files:
        command = ["gcc", "-c", "-fPIC", *variable("HARDENED"), "-o", str(objects[file.stem]), str(file)]
        subprocess.run(command, check=True, cwd=NATIVE.parent)
    found = {name: symbols(compiled) for name, compiled in objects.items()}
    owner = {symbol: name for name, (defined, _) in found.items() for symbol in defined}
    return {name: {owner[symbol] for symbol in used if symbol in owner} - {name} for name, (_, used) in found.items()}


def layers(graph: Mapping[str, set[str]]) -> list[str]:
    """Returns the files such that each comes after those that it uses; raises CycleError if there is no such order."""
    return list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_c_files_call_each_other_in_a_circle(folder: str, tmp_path: Path) -> None:
    graph = calls(sources(folder), tmp_path)
    assert any(graph.values())  # else nothing was looked at
    try:
        order = layers(graph)
    except CycleError as error:
        pytest.fail(f"native/{folder}: {' <- '.join(error.args[1])}")
    assert sorted(order) == sorted(file.stem for file in sources(folder))


def test_a_circle_is_found(tmp_path: Path) -> None:
    texts = {"a": "void b(void);\nvoid a(void) { b(); }\n", "b": "void c(void);\nvoid b(void) { c(); }\n"}
    texts["c"] = "void a(void);\nvoid c(void) { a(); }\n"
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text.replace("void a(void) {", "void a(void);\nvoid a(void) {"))
    graph = calls([tmp_path / f"{name}.c" for name in texts], tmp_path / "objects")
    assert graph == {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    with pytest.raises(CycleError):
        layers(graph)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_c_file_includes_the_header_of_its_own(folder: str) -> None:
    """What a file offers is declared in the header of its name, which the compiler holds against it."""
    for file in sources(folder):
        header = file.with_suffix(".h")
        if header.exists():
            assert f'#include "{header.name}"' in file.read_text(), file
