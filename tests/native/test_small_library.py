"""What musl has otherwise than glibc does not show: errors keep their words, and programs are found as before."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.native.building import HERE, NATIVE, variable

SEEN = [
    "E2BIG",
    "EACCES",
    "EADDRINUSE",
    "EAGAIN",
    "EBADF",
    "EBUSY",
    "ECHILD",
    "ECONNREFUSED",
    "ECONNRESET",
    "EDQUOT",
    "EEXIST",
    "EFAULT",
    "EFBIG",
    "EINTR",
    "EINVAL",
    "EIO",
    "EISDIR",
    "ELOOP",
    "EMFILE",
    "EMLINK",
    "ENAMETOOLONG",
    "ENFILE",
    "ENODATA",
    "ENODEV",
    "ENOENT",
    "ENOEXEC",
    "ENOMEM",
    "ENOSPC",
    "ENOSYS",
    "ENOTDIR",
    "ENOTEMPTY",
    "ENOTTY",
    "ENXIO",
    "EOPNOTSUPP",
    "EOVERFLOW",
    "EPERM",
    "EPIPE",
    "EROFS",
    "ESPIPE",
    "ESRCH",
    "ESTALE",
    "ETIMEDOUT",
    "ETXTBSY",
    "EUCLEAN",
    "EUSERS",
    "EXDEV",
]
"""What calls of PID 1 and of the launcher can end in."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("small") / "execute"
    inputs = [HERE / "execute.c", NATIVE / "init/child.c", NATIVE / "init/basics.c"]
    command = [
        *variable("MUSL"),
        *variable("NATIVE_FLAGS"),
        f"-I{NATIVE / 'init'}",
        "-o",
        str(output),
        *map(str, inputs),
    ]
    subprocess.run(command, check=True, cwd=NATIVE.parent)
    return output


def test_errors_are_told_in_the_words_of_glibc(program: Path) -> None:
    texts = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    for name in SEEN:
        number = getattr(errno, name)
        assert texts[number - 1] == os.strerror(number), name


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Directories to look for programs in."""
    for name, text, mode in (
        ("first/script", 'echo "$0" "$@"', 0o755),  # no program the kernel knows
        ("first/locked", "#!/bin/sh\necho first", 0o644),
        ("second/locked", "#!/bin/sh\necho second", 0o755),
        ("second/secret", "#!/bin/sh\n", 0o644),
        ("second/lost", "#!/nowhere/at/all\n", 0o755),
    ):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n")
        file.chmod(mode)
    (tmp_path / "third").write_text("no directory")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("script", "{0}/first/script a b\n"),
        ("{0}/first/script", "{0}/first/script a b\n"),
        ("locked", "second\n"),
        ("secret", f"{errno.EACCES}\n"),
        ("lost", f"{errno.ENOENT}\n"),
        ("nowhere", f"{errno.ENOENT}\n"),
        ("", f"{errno.ENOENT}\n"),
        ("{0}/first", f"{errno.EACCES}\n"),
        ("{0}/third/x", f"{errno.ENOTDIR}\n"),
        ("x" * 256, f"{errno.ENAMETOOLONG}\n"),
    ],
)
def test_programs_are_found_by_the_path(program: Path, programs: Path, name: str, expected: str) -> None:
    path = ":".join(str(programs / part) for part in ("third", "missing", "first", "second"))
    command = [str(program), name.format(programs), "a", "b"]
    run = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert run.stdout == expected.format(programs)


@pytest.mark.parametrize("environment", [{}, {"PATH": "/bin:/usr/bin"}])
def test_there_is_a_path_by_default(program: Path, environment: dict[str, str]) -> None:
    command = [str(program), "sh", "-c", "echo found"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "found\n"


def test_an_empty_directory_is_the_working_one(program: Path, programs: Path) -> None:
    command = [str(program), "script"]
    run = subprocess.run(command, env={"PATH": ""}, cwd=programs / "first", capture_output=True, text=True, check=True)
    assert run.stdout == "script\n"
