"""Runs the programs of a build, each in namespaces of its own, and passes on what they print."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tvsnap.images.build.enter import SETUP, START
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import ensure_mount_points
from tvsnap.model.errors import MachineLacks
from tvsnap.model.images import UID_BASE, UID_COUNT

_ENTER = Path(__file__).with_name("enter.py")
_PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_LONGEST_LINE = 4096
"""Characters; what a program prints without a line's end must not fill the memory."""


def proxy_variables() -> dict[str, str]:
    """The environment variables that say how this machine reaches the network, for the time of a build."""
    return {name: value for name, value in os.environ.items() if name.lower() in _PROXY_VARIABLES}


def run_client(argv: Sequence[str], output: Callable[[str], None], *, env: Mapping[str, str] | None = None) -> str:
    """Runs a program that talks to an engine or keeps images itself, with this process's rights.

    Args:
        argv: the program, searched in PATH, and its arguments.
        output: gets each line that it prints on standard error.
        env: its whole environment; by default this process's.

    Returns:
        What it printed on standard output.

    Raises:
        BuildStepFailed: it ended with another status than 0; the reason is what it printed last.
    """
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C is for us: we then end it, and it cleans up.
        start_new_session=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        printed: list[str] = []
        # Two pipes: one that nobody reads would fill up and stop the program.
        reader = threading.Thread(target=lambda stream: printed.append(stream.read()), args=(process.stdout,))
        reader.start()
        last = ""
        try:
            while line := process.stderr.readline(_LONGEST_LINE):
                output(line.rstrip())
                last = line.strip() or last
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            reader.join()
    if status:
        raise BuildStepFailed(f"failed with exit status {status}: {last}")
    return printed[0]


def run_beside(argv: Sequence[str], env: Mapping[str, str], output: Callable[[str], None]) -> None:
    """Runs a program of this machine with its root's rights, where its mounts and processes end with it.

    Args:
        argv: the program, searched in PATH, and its arguments.
        env: its whole environment.
        output: gets each line that it prints.

    Raises:
        BuildStepFailed: it ended with another status than 0.
        MachineLacks: this machine does not allow the namespaces.
    """
    _run(argv, env, output, root=None, cwd="/", hostname="localhost")


def run_inside(
    root: Path, argv: Sequence[str], env: Mapping[str, str], output: Callable[[str], None], *, cwd: str, hostname: str
) -> None:
    """Runs a program of the tree `root` as its root, in a user namespace: to the host it is nobody.

    It uses the host's network, as package managers must. The owners in the tree must have been shifted.

    Args:
        root: the tree.
        argv: the program, an absolute path inside, and its arguments.
        env: its whole environment.
        output: gets each line that it prints.
        cwd: where it starts; absolute, inside.
        hostname: as it sees it.

    Raises:
        BuildStepFailed: it ended with another status than 0.
        MachineLacks: this machine does not allow the namespaces.
    """
    ensure_mount_points(root)
    _run(argv, env, output, root=root, cwd=cwd, hostname=hostname)


def _run(
    argv: Sequence[str],
    env: Mapping[str, str],
    output: Callable[[str], None],
    *,
    root: Path | None,
    cwd: str,
    hostname: str,
) -> None:
    report, report_end = os.pipe()
    job = {
        "argv": list(argv),
        "env": dict(env),
        "root": None if root is None else str(root),
        "cwd": cwd,
        "hostname": hostname,
        "uid_base": UID_BASE,
        "uid_count": UID_COUNT,
        "parent": os.getpid(),
        "report": report_end,
    }
    with os.fdopen(report, "rb") as report_stream:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_ENTER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(report_end,),
                # Ctrl-C is for us: we then end the process and all that it started.
                start_new_session=True,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        finally:
            os.close(report_end)
        with process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                # Not on the command line, which every user of this machine can read.
                with contextlib.suppress(BrokenPipeError), process.stdin as stream:
                    json.dump(job, stream)
                while line := process.stdout.readline(_LONGEST_LINE):
                    output(line.rstrip())
                complaint = report_stream.read().decode()
                status = process.wait()
            except BaseException:
                # It ends all that it started, and itself when that is done: only then may the tree be removed.
                process.terminate()
                process.wait()
                raise
    stage, _, reason = complaint.partition(": ")
    if stage == SETUP:
        raise MachineLacks(
            f"this machine does not allow what building needs ({reason}); in a container: run it with --privileged"
        )
    if stage == START:
        raise BuildStepFailed(f"could not start: {reason}")
    if status:
        raise BuildStepFailed(f"failed with exit status {status}")
