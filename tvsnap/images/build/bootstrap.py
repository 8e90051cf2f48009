"""Bootstraps a Debian system from its archive, by mmdebstrap or, if that is missing, debootstrap.

Packages come from the sources of this machine's own apt. Downloaded packages are kept, and so is the minimal system
that mmdebstrap makes first, which takes two thirds of the time: the next system with other packages is faster.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host.libc import closing
from tvsnap.host.locks import locked
from tvsnap.images.build.runner import proxy_variables, run_beside
from tvsnap.images.descriptions.spec import DebianBase
from tvsnap.images.errors import BuildStepFailed
from tvsnap.images.rootfs import remove_entry
from tvsnap.model.errors import MachineLacks

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PASSED_ON = re.compile(
    r"^(Acquire::(?:[a-z]+::(?:Proxy|No-Cache|Verify-Peer|CaInfo)(?:::\S+)?|Retries|Check-Valid-Until|Check-Date)) "
    r'"(.+)";$',
    re.IGNORECASE | re.MULTILINE,
)
"""The settings of this machine's apt for reaching its archive."""

_APT_OPTIONS = ('APT::Install-Recommends "false"', 'Acquire::Languages "none"')

_DPKG_OPTIONS = (
    "force-unsafe-io",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/man/*",
)
"""Documentation and translations are a third of a small system, and agents do not need them.

A build that a power failure interrupts is discarded, and so is a sandbox: dpkg need not sync (as in Docker's Debian
images).
"""

_BUILD_TIME = "1704067200"
"""Seconds since the epoch that programs use for "now", so that two bootstraps of the same packages are equal."""

_DEBIAN_SUITES = re.compile(r"buster|bullseye|bookworm|trixie|forky|sid|(old)*stable|testing|unstable|experimental")
_KEYRINGS = {"Debian": "debian-archive-keyring", "Ubuntu": "ubuntu-keyring"}
_NO_KEY = re.compile(r"NO_PUBKEY ([0-9A-F]+)|unknown key id ([0-9A-F]+)")
_COMPONENTS = {"Debian": "main", "Ubuntu": "main universe"}

_LITTER = (
    "etc/apt/apt.conf.d/99mmdebstrap",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*",
    "var/cache/debconf/*-old",
    "var/cache/ldconfig/aux-cache",
    "var/lib/apt/lists/*",
    "var/lib/dpkg/*-old",
    "var/log/alternatives.log",
    "var/log/apt/*",
    "var/log/bootstrap.log",
    "var/log/dpkg.log",
)


def bootstrap_installs_packages() -> bool:
    """Whether `bootstrap` itself installs packages: debootstrap cannot choose among alternatives."""
    return shutil.which("mmdebstrap") is not None


def bootstrap(
    base: DebianBase, packages: Sequence[str], root: Path, scratch: Path, cache: Path, output: Callable[[str], None]
) -> tuple[str, ...]:
    """Makes a Debian system; returns the packages that are still to be installed (all or none).

    See `bootstrap_installs_packages`. Raises BuildStepFailed on failure, and MachineLacks if both programs are missing.

    Args:
        base: the suite and its archive.
        packages: to install in addition to a minimal system.
        root: a directory that does not exist yet; its owners are not shifted.
        scratch: a directory for temporary files, removed after the build.
        cache: the directory of downloaded packages and minimal systems.
        output: gets printed lines.
    """
    sources = [f"deb {base.mirror} {base.suite} main"] if base.mirror else machine_sources(base.suite)
    # Without the rest of this process's environment, which would reach the packages' scripts.
    env = {
        **proxy_variables(),
        "PATH": f"{os.environ.get('PATH', '')}:{PATH}",
        "HOME": "/root",
        "TMPDIR": str(scratch),
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "SOURCE_DATE_EPOCH": _BUILD_TIME,
    }
    cache.mkdir(parents=True, exist_ok=True)
    if bootstrap_installs_packages():
        with _naming_keyrings(base.suite, output) as output:
            Mmdebstrap(base.suite, sources, cache, env, output).make(packages, root)
        _forget_superseded(root, cache)
        remaining: tuple[str, ...] = ()
    elif shutil.which("debootstrap"):
        mirror = [source.split()[1] for source in sources[:1]]
        options = ["--variant=minbase", f"--cache-dir={cache}"]
        with _naming_keyrings(base.suite, output) as output:
            run_beside(["debootstrap", *options, base.suite, str(root), *mirror], env, output)
        if sources:
            (root / "etc/apt/sources.list").write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
        remaining = tuple(packages)
    else:
        raise MachineLacks("mmdebstrap is missing: apt-get install mmdebstrap")
    _tidy(root)
    return remaining


@contextlib.contextmanager
def _naming_keyrings(suite: str, output: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yields a receiver of lines; a failure of the block names the missing keyring, if that was the cause."""
    lacking: set[str] = set()

    def heard(line: str) -> None:
        lacking.update(key for keys in _NO_KEY.findall(line) for key in keys if key)
        output(line)

    try:
        yield heard
    except BuildStepFailed as error:
        if not lacking:
            raise
        origin = _origin(suite)
        raise BuildStepFailed(
            f"{error}: this machine has no key {', '.join(sorted(lacking))} of {origin}'s archive of {suite}: "
            f"apt-get install {_KEYRINGS[origin]}, or put a newer one of its keyrings into /etc/apt/trusted.gpg.d"
        ) from error


class Mmdebstrap:
    """Makes systems of one suite: installs packages in copies of a minimal system, which is made once and kept."""

    def __init__(
        self, suite: str, sources: Sequence[str], cache: Path, env: Mapping[str, str], output: Callable[[str], None]
    ) -> None:
        """
        Args:
            suite: of Debian or Ubuntu.
            sources: the lines of its sources.list; empty for mmdebstrap's own.
            cache: the directory of packages and minimal systems.
            env: the programs' whole environment.
            output: gets each line that they print.
        """
        self._suite = suite
        self._sources = sources
        self._cache = cache
        self._env = env
        self._output = output
        self._options = (
            *(f"--aptopt={option}" for option in (*_APT_OPTIONS, *machine_apt_options())),
            *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        )
        settings = "\n".join((suite, *sources, *self._options))
        self._minimal = cache / f"minimal-{hashlib.sha256(settings.encode()).hexdigest()[:16]}.tar"

    def make(self, packages: Sequence[str], root: Path) -> None:
        """Makes a system with packages at `root`, which does not exist yet; raises BuildStepFailed on failure."""
        self._keep_minimal()
        archive = shlex.quote(str(self._minimal))
        unpack = "tar -xf {0} -C \"$1\" --exclude='./dev/*' --numeric-owner --xattrs --xattrs-include='*'"
        apt = 'chroot "$1" apt-get'
        renew = f"if {apt} -s dist-upgrade | grep -q '^Inst '; then rm -f {archive}; {apt} -y dist-upgrade; fi"
        self._run(
            root,
            "--variant=custom",
            "--format=directory",
            # If it cannot be unpacked, the next build makes it again.
            f"--setup-hook={unpack.format(archive)} || {{ rm -f {archive}; exit 1; }}",
            '--setup-hook=mkdir -p "$1/usr/share/man/man1"',  # Java's packages create links there
            f"--setup-hook={_links(shlex.quote(str(self._cache)), _ARCHIVES)}",
            # If the archive has newer packages than the kept system, the next build makes that again.
            f"--customize-hook={renew}",
            *([f"--customize-hook={apt} -y install {shlex.join(packages)}"] if packages else []),
            f"--customize-hook={_links(_ARCHIVES, shlex.quote(str(self._cache)))}",
        )

    def _keep_minimal(self) -> None:
        """Makes the minimal system unless it is kept; parallel builds make it once."""
        unfinished = self._minimal.with_suffix(".unfinished")
        with closing(os.open(self._cache, os.O_RDONLY | os.O_DIRECTORY)) as directory, locked(directory):
            if self._minimal.exists():
                return
            try:
                unfinished.touch(mode=0o600)  # it has the settings of this machine's apt in it
                self._run(
                    unfinished,
                    "--variant=minbase",
                    "--format=tar",
                    "--skip=essential/unlink",
                    f"--setup-hook=mkdir -p {_ARCHIVES}",
                    f"--setup-hook={_links(shlex.quote(str(self._cache)), _ARCHIVES)}",
                    f"--customize-hook={_links(_ARCHIVES, shlex.quote(str(self._cache)))}",
                )
                unfinished.rename(self._minimal)
            finally:
                unfinished.unlink(missing_ok=True)

    def _run(self, target: Path, *options: str) -> None:
        arguments = (*self._options, *options, self._suite, str(target), *self._sources)
        run_beside(["mmdebstrap", "--mode=root", "--verbose", *arguments], self._env, self._output)


_ARCHIVES = '"$1"/var/cache/apt/archives'
"""The directory of apt's packages, in a hook of mmdebstrap."""


def _links(source: str, target: str) -> str:
    """Returns a shell command that puts packages of one directory into another (both are shell words).

    It uses hard links if both are on the same file system, which is the default.
    """
    copy = f"find {source} -maxdepth 1 -name '*.deb' -exec cp {{}} --update --target-directory={target} {{{{}}}} +"
    return f"{copy.format('--link')} 2>/dev/null || {copy.format('')} || true"


def _forget_superseded(root: Path, cache: Path) -> None:
    """Deletes kept packages of which this build installed another version."""
    installed = {}
    name = architecture = ""
    for line in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(": ")
        if key == "Package":
            name = value
        elif key == "Architecture":
            architecture = value
        elif key == "Version":
            installed[name, architecture] = value
    for path in cache.glob("*.deb"):
        parts = path.stem.split("_")
        if len(parts) == 3 and installed.get((parts[0], parts[2]), parts[1]) != parts[1].replace("%3a", ":"):
            path.unlink(missing_ok=True)


def _tidy(root: Path) -> None:
    """Removes files that differ between bootstraps and are useless inside."""
    for pattern in _LITTER:
        for path in root.glob(pattern):
            remove_entry(path)
    _hide_credentials(root)


def _hide_credentials(root: Path) -> None:
    """Removes passwords from archive addresses, because agents can read these files."""
    for path in (root / "etc/apt/sources.list", *root.glob("etc/apt/sources.list.d/*")):
        if path.is_file() and not path.is_symlink():
            text = path.read_text(encoding="utf-8")
            hidden = re.sub(r"://[^/@\s]+@", "://", text)
            if hidden != text:
                path.write_text(hidden, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Archive:
    origin: str
    suite: str
    address: str
    component: str


def machine_sources(suite: str) -> list[str]:
    """Returns the lines of a sources.list for a suite, with the addresses that this machine's own apt uses.

    For this machine's own suite they include updates and security fixes; for another suite of the same distribution
    they are guessed; for another distribution there are none, so that the bootstrap program uses its defaults.
    """
    archives = _machine_archives()
    own = [archive for archive in archives if archive.suite == suite or archive.suite.startswith(f"{suite}-")]
    if any(archive.suite == suite for archive in own):
        return _lines(own)
    origin = _origin(suite)
    for archive in archives:
        if archive.origin == origin and "-" not in archive.suite:
            return [f"deb {archive.address} {suite} {_COMPONENTS[origin]}"]
    return []


def _origin(suite: str) -> str:
    return "Debian" if _DEBIAN_SUITES.fullmatch(suite) else "Ubuntu"


def _lines(archives: list[_Archive]) -> list[str]:
    components: dict[tuple[str, str], list[str]] = {}
    for archive in archives:
        parts = components.setdefault((archive.address, archive.suite), [])
        if archive.component not in parts:
            parts.append(archive.component)
    return [f"deb {address} {suite} {' '.join(names)}" for (address, suite), names in components.items()]


def _machine_archives() -> list[_Archive]:
    form = "$(ORIGIN)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)"
    text = _output(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
    rows = [line.split("|") for line in text.splitlines()]
    return [_Archive(*row) for row in rows if len(row) == 4]


def machine_apt_options() -> list[str]:
    """Returns this machine's settings for reaching apt's archive (proxies and the like), as lines of apt.conf."""
    return [f'{name} "{value}"' for name, value in _PASSED_ON.findall(_output(["apt-config", "dump"]))]


def _output(command: list[str]) -> str:
    """Returns a program's output, or "", which leads to defaults, if it is missing or fails."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def install_script(packages: Sequence[str]) -> str:
    """Returns a shell script that installs packages in an existing system, and tidies up like a bootstrap.

    The script runs inside a sandbox, because the system is untrusted and may have links to anywhere.
    """
    options = [option.replace(" ", "=", 1).replace('"', "") for option in (*_APT_OPTIONS, *machine_apt_options())]
    apt = shlex.join(["apt-get", *(f"-o{option}" for option in options)])
    litter = " ".join(f"/{pattern}" for pattern in _LITTER)
    return f"{apt} update && {apt} install -y {shlex.join(packages)} && rm -rf {litter}"
