"""Runs the programs of a build in their own namespaces, and passes on their output."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tvsnap.host.native import DEVICE_OPTIONS, LAUNCH
from tvsnap.images.descriptions.spec import DockerfileBase
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import ensure_mount_points
from tvsnap.model.errors import MachineLacks
from tvsnap.model.images import UID_BASE, UID_COUNT

_PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_LONGEST_LINE = 4096
"""Characters; output without a line's end must not fill the memory."""
_CANNOT_START = 127
"""Exit status of `tvsnap-launch build` if the program itself cannot be started."""


_running: set[subprocess.Popen[str]] = set()


def proxy_variables() -> dict[str, str]:
    """Returns the environment variables for this machine's proxies, for use during a build."""
    return {name: value for name, value in os.environ.items() if name.lower() in _PROXY_VARIABLES}


def run_client(argv: Sequence[str], output: Callable[[str], None], *, env: Mapping[str, str] | None = None) -> str:
    """Runs a client of an engine, or a program that stores images itself, with this process's rights.

    Returns its standard output. Raises BuildStepFailed, with the last line printed, if its exit status is not 0.

    Args:
        argv: the program, searched in PATH, and its arguments.
        output: gets each line of its standard error.
        env: its whole environment; by default this process's.
    """
    # A file, because a pipe that nobody reads would fill up and stop the program.
    with tempfile.TemporaryFile() as printed, _started(argv, env, printed) as process:
        assert process.stderr is not None
        last = _to_its_end(process, process.stderr, output)
        if process.returncode:
            raise BuildStepFailed(f"failed with exit status {process.returncode}: {last}")
        printed.seek(0)
        return printed.read().decode(errors="replace")


def run_build(
    command: Sequence[str], base: DockerfileBase, output: Callable[[str], None], env: Mapping[str, str] | None = None
) -> str:
    """Builds from a Dockerfile by `docker build`, or a program with the same options; returns the image's id.

    `command` is the program with its own options; see `run_client` for `output`, `env` and errors.
    """
    with tempfile.TemporaryDirectory(prefix="tvsnap-build-") as scratch:
        result, dockerfile = Path(scratch, "id"), base.path
        if base.text is not None:
            dockerfile = Path(scratch, "Dockerfile")
            dockerfile.write_text(base.text, encoding="utf-8")
        options = [f"--iidfile={result}", f"--file={dockerfile}", *([f"--target={base.target}"] if base.target else [])]
        options += [f"--build-arg={name}={value}" for name, value in {**proxy_variables(), **base.args}.items()]
        run_client([*command, *options, str(base.context)], output, env=env)
        return result.read_text(encoding="ascii").strip()


def run_beside(argv: Sequence[str], env: Mapping[str, str], output: Callable[[str], None]) -> None:
    """Runs a program of this machine as root, in namespaces so that its mounts and processes end with it.

    Raises BuildStepFailed if its exit status is not 0, and MachineLacks if this machine does not allow the namespaces.

    Args:
        argv: the program, searched in PATH, and its arguments.
        env: its whole environment.
        output: gets each line that it prints.
    """
    _run(argv, env, output, "/", "localhost")


def run_inside(
    root: Path, argv: Sequence[str], env: Mapping[str, str], output: Callable[[str], None], *, cwd: str, hostname: str
) -> None:
    """Runs a program of the tree `root` as root of a user namespace, which has no rights on the host.

    It uses the host's network, which package managers need. Raises the same errors as `run_beside`.

    Args:
        root: the tree, with shifted owners.
        argv: the program, an absolute path inside, and its arguments.
        env: its whole environment.
        output: gets each line that it prints.
        cwd: its working directory; an absolute path inside.
        hostname: as seen by the program.
    """
    ensure_mount_points(root)
    tree = ("--lower", str(root), "--ids", str(UID_BASE), str(UID_COUNT), *DEVICE_OPTIONS)
    _run(argv, env, output, cwd, hostname, *tree)


def _run(
    argv: Sequence[str], env: Mapping[str, str], output: Callable[[str], None], cwd: str, hostname: str, *tree: str
) -> None:
    options = ["--directory", cwd, "--hostname", hostname, "--parent", str(os.getpid()), *tree]
    try:
        process = _started([str(LAUNCH), "build", *options, "--", *argv], env)
    except FileNotFoundError:
        raise MachineLacks(f"{LAUNCH.name} was not built with the package; make native") from None
    except (OSError, ValueError) as error:  # arguments too long for a command line, or invalid in one
        raise BuildStepFailed(f"could not start: {error}") from error
    # Errors of the launcher are on standard error, the program's output is on standard output.
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        # When terminated, it first ends all that it started: only then may the tree be removed.
        _to_its_end(process, process.stdout, output)
        complaint = process.stderr.read().strip()
    if complaint and process.returncode == _CANNOT_START:
        raise BuildStepFailed(f"could not start: {complaint}")
    if complaint:
        raise MachineLacks(
            f"this machine does not allow what building needs ({complaint}); in a container: run it with --privileged"
        )
    if process.returncode:
        raise BuildStepFailed(f"failed with exit status {process.returncode}")


def end_running() -> None:
    """Ends the programs that builds of this process wait for, by which these builds fail. Any thread may call it."""
    for process in list(_running):
        process.terminate()


def _started(
    argv: Sequence[str], env: Mapping[str, str] | None, printed: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.PIPE,
        # Ctrl-C reaches only this process, which then ends the process and all that it started.
        start_new_session=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _to_its_end(process: subprocess.Popen[str], stream: IO[str], output: Callable[[str], None]) -> str:
    """Passes on the lines of a stream until the process has ended, and terminates it on an error.

    Returns the last line that is not blank.
    """
    last = ""
    _running.add(process)
    try:
        while line := stream.readline(_LONGEST_LINE):
            output(line.rstrip())
            last = line.strip() or last
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        _running.discard(process)
    return last
