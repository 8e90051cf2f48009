"""The work of `tvsnap setup`: installs or builds programs that this machine lacks.

Shell scripts do the work; `make setup` uses them, too, and a wheel contains them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.host import scripts
from tvsnap.model.errors import InfrastructureError, MachineLacks
from tvsnap.sandboxes.criu import binary as criu_binary

_SEARCHED = os.pathsep.join(["/usr/local/sbin", "/usr/sbin", "/sbin"])  # not in everyone's PATH
_PACKAGES = {
    "mkfs.btrfs": ("btrfs-progs", "files of snapshots that cost nothing until they are changed"),
    "mmdebstrap": ("mmdebstrap", "images that start from a Debian bootstrap, such as terminal"),
    "mount": ("mount", "sandboxes"),
    "nsenter": ("util-linux", "sandboxes"),
    "tar": ("tar", "images"),
}
"""Programs -> the package of each on Debian and Ubuntu, and its purpose."""
_INSTALL = '. scripts/common.sh; one_set_up_at_a_time; install_packages "$@"'
_ERROR = "error: "  # begins the last line of a script that failed


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the setup.

    Attributes:
        name: "packages" or "criu".
        what: its work, in words.
        why: its purpose.
        command: the command to run in the directory of the scripts.
        packages: the packages that it installs with apt, if they are known before.
    """

    name: str
    what: str
    why: str
    command: tuple[str, ...]
    packages: tuple[str, ...] = ()


def plan(*, criu: bool = True) -> list[Step]:
    """Returns the steps for this machine, in order; none if nothing is missing that can be installed.

    `criu` is False to do without CRIU if it is missing.
    """
    return [*_packages(), *(_criu() if criu else [])]


def check_possible(steps: list[Step]) -> None:
    """Raises MachineLacks if the rights for these steps are missing, or apt is."""
    if not steps:
        return
    if shutil.which("apt-get") is None:
        wanted = sorted({package for step in steps for package in step.packages}) or [step.name for step in steps]
        raise MachineLacks(
            f"there is no apt-get here, which tvsnap setup installs packages with; install with this system's own "
            f"package manager what Debian has as {', '.join(wanted)} (a CRIU of yours is found in PATH)"
        )
    if os.geteuid() != 0:
        raise MachineLacks("root's rights are needed for what this machine lacks: run tvsnap setup as root (sudo)")


def carry_out(step: Step, say: Callable[[str], None]) -> None:
    """Makes a step. If it is interrupted, the scripts are ended first, and nothing unfinished remains.

    `say` is called with each line about the next action, and with the last output of a failed program.

    Raises:
        InfrastructureError: with the reason, and the place of the log.
    """
    # In a session of its own, so that Ctrl-C reaches only this process, which waits until the scripts have cleaned up.
    with subprocess.Popen(
        step.command,
        cwd=scripts.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as script:
        try:
            error = _follow(script, say)
        except BaseException:
            os.killpg(script.pid, signal.SIGTERM)  # not SIGINT, which it ignores if this process was started so
            _follow(script, lambda _: None)
            script.wait()
            raise
    if script.returncode != 0:
        raise InfrastructureError(f"{step.what}: {error or f'ended with status {script.returncode}'}")


def _follow(script: subprocess.Popen[str], say: Callable[[str], None]) -> str:
    """Reads all output of a script; returns its error, empty if it printed none."""
    assert script.stdout is not None
    error = ""
    for line in map(str.rstrip, script.stdout):
        if line.startswith(_ERROR):
            error = line.removeprefix(_ERROR)
        else:
            say(line)
    return error


def _packages() -> list[Step]:
    lacking = [program for program in _PACKAGES if not _has(program)]
    if not lacking:
        return []
    packages = tuple(dict.fromkeys(_PACKAGES[program][0] for program in lacking))
    purposes = dict.fromkeys(_PACKAGES[program][1] for program in lacking)
    return [
        Step(
            "packages",
            f"install {', '.join(packages)} with apt",
            "; ".join(purposes),
            ("bash", "-euo", "pipefail", "-c", _INSTALL, "tvsnap", *packages),
            packages,
        )
    ]


def _criu() -> list[Step]:
    binary = criu_binary.find_criu()
    if os.environ.get("TVSNAP_CRIU") or (binary is not None and criu_binary.is_current(binary)):
        return []
    return [
        Step(
            "criu",
            f"build CRIU into {criu_binary.KEPT}, from the source package of a newer suite of this distribution, "
            "having installed a compiler and libraries with apt",
            "snapshots of live processes",
            ("bash", "scripts/ensure_criu.sh"),
        )
    ]


def _has(program: str) -> bool:
    if program == "mmdebstrap" and _has("debootstrap"):
        return True
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), _SEARCHED])) is not None
