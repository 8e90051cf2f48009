"""The C sources, and how the Makefile has them compiled."""

from __future__ import annotations

import shlex
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
HERE = Path(__file__).resolve().parent
SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@cache
def variable(name: str) -> list[str]:
    """Returns the words of a variable of the Makefile."""
    show = f"show: ; @echo '$({name})'"
    command = ["make", "--no-print-directory", "-C", str(ROOT), f"--eval={show}", "show"]
    return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def sources(folder: str) -> list[Path]:
    """Returns the C files of a folder in `native` that are linked together on this machine."""
    if folder == "rewind":
        return [ROOT / name for name in variable("REWIND")]
    return sorted((NATIVE / folder).glob("*.c"))


def build(output: Path, *inputs: Path, flags: list[str]) -> Path:
    """Compiles C files to a program, as the Makefile does but for `flags`. Raises what the compiler says."""
    warnings = variable("WARNINGS")
    command = ["gcc", "-D_GNU_SOURCE", *warnings, *flags, f"-I{NATIVE}", f"-I{NATIVE / 'init'}", "-o", str(output)]
    run = subprocess.run([*command, *map(str, inputs)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return output
