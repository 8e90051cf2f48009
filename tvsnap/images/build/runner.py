"""Runs the programs of a build, each in namespaces of its own, and passes on what they print."""

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
"""Characters; what a program prints without a line's end must not fill the memory."""
_CANNOT_START = 127
"""Status of `tvsnap-launch build` where it complains of the program itself."""


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
    # A file: a pipe that nobody reads would fill up and stop the program.
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
    """Builds from a Dockerfile by `docker build`, or a program that takes its options; returns the image's id.

    Args:
        command: the program with options of its own.
        base: what is built.
        output, env: see `run_client`, also for what is raised.
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
    """Runs a program of this machine with its root's rights, where its mounts and processes end with it.

    Args:
        argv: the program, searched in PATH, and its arguments.
        env: its whole environment.
        output: gets each line that it prints.

    Raises:
        BuildStepFailed: it ended with another status than 0.
        MachineLacks: this machine does not allow the namespaces.
    """
    _run(argv, env, output, "/", "localhost")


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
    except (OSError, ValueError) as error:  # more than a command line holds, or nothing that it can
        raise BuildStepFailed(f"could not start: {error}") from error
    # What it could not do comes on standard error, what the program prints on standard output.
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Told to end, it ends all that it started, and itself when that is done: only then may the tree be removed.
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


def _started(
    argv: Sequence[str], env: Mapping[str, str] | None, printed: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.PIPE,
        # Ctrl-C is for us: we then end the process and all that it started.
        start_new_session=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _to_its_end(process: subprocess.Popen[str], stream: IO[str], output: Callable[[str], None]) -> str:
    """Hands over the lines of a stream until the process has ended, which it is told to do if that fails.

    Returns:
        The last line that is not blank.
    """
    last = ""
    try:
        while line := stream.readline(_LONGEST_LINE):
            output(line.rstrip())
            last = line.strip() or last
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return last
