"""A built image, and its manifest on disk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tvsnap.model.errors import TvsnapError, UsageError
from tvsnap.model.network import NO_NETWORK, Network
from tvsnap.model.services import Program, Services
from tvsnap.model.task import Task

UID_BASE = 0x70000000
"""The user and group on the host that are root inside: far above the ids that systems assign."""

UID_COUNT = 65536
"""The number of users and groups inside, from 0 up."""

CAPABILITY_XATTR = "security.capability"
MANIFEST = "image.json"
ROOTFS = "rootfs"
LAYERS = "layers"
"""The directory, below that of the images, of trees that several images share."""
BUILD_LOG = "build.log"
FORMAT = 1
"""Version of the manifest and of the tree beside it."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """The limits of an image's sandboxes, if the caller gives none; None if the image does not specify one.

    Attributes:
        memory: bytes.
        processes: processes and threads at once.
        cpus: processor time, as a number of processors.
        disk: bytes that files may take beyond the image.
    """

    memory: int | None = None
    processes: int | None = None
    cpus: float | None = None
    disk: int | None = None

    def said(self) -> dict[str, Any]:
        """Returns the specified ones, by name: fields of `tvsnap.model.limits.Limits`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts of a task for its harness, in seconds; None if the task does not specify one.

    Attributes:
        agent: one rollout.
        verifier: the task's tests, after it.
    """

    agent: float | None = None
    verifier: float | None = None

    def said(self) -> dict[str, float]:
        """Returns the specified ones, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def has_nothing_to_gain(user: str) -> bool:
    """Returns whether an image sets `no_new_privileges` by default: it does if shells run as root.

    Another user may have to work with `sudo` and `su`.
    """
    return user.partition(":")[0] in ("root", "0")


@dataclass(frozen=True, slots=True)
class Image:
    """A root filesystem for sandboxes, and the settings with which they start.

    Attributes:
        name: the name by which it was found; "" if it has none, because a newer build took the name over.
        digest: 64 hexadecimal digits. Two images have the same digest only if a sandbox sees no difference between
            them, except in the modification times of files.
        environment: the name of the environment that defines its tools, such as "terminal".
        rootfs: the directory with its files, except those that it shares with other images; it must not be written to.
            Owners are shifted by `UID_BASE`.
        env: the environment variables of every process.
        workdir: the absolute path, inside, at which shells start.
        user: the user of shells, by name or number inside; ":group" may follow.
        size: bytes on disk.
        created: the time at which it was built, in seconds since the epoch.
        hostname: the host name of its sandboxes.
        limits: the limits of its sandboxes, if the caller of the cache gives none.
        timeouts: seconds for agent and verifier, for the program that runs its task; tvsnap only passes them on.
        no_new_privileges: whether programs never give more rights than their caller has, despite set-user-id bits.
        clock: the time at which the clock of its sandboxes begins, in seconds since 1970; None for the machine's clock.
        random_seed: the seed of its sandboxes' randomness; None for the machine's randomness.
        reseed: the command that gives its programs other random numbers in a fork that is reseeded; "" for none.
        network: the network policy of its sandboxes, if the caller of the cache gives none.
        task: settings of agent, verifier and solution of its task, for the program that runs these.
        below: directories with files that it shares, topmost first; see `layers`.
        services: programs beside the main one, each with a root directory of its own.
    """

    name: str
    digest: str
    environment: str
    rootfs: Path
    env: dict[str, str]
    workdir: str
    user: str
    size: int
    created: float
    hostname: str = "sandbox"
    limits: ImageLimits = field(default_factory=ImageLimits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    no_new_privileges: bool = True
    clock: int | None = None
    random_seed: int | None = None
    reseed: str = ""
    network: Network = NO_NETWORK
    task: Task = field(default_factory=Task)
    below: tuple[Path, ...] = ()
    services: Services = field(default_factory=Services)

    @property
    def layers(self) -> tuple[Path, ...]:
        """The directories with its files, topmost first, as overlayfs stacks them."""
        return (self.rootfs, *self.below)


def shared_tree(images: Path, id: str) -> Path:
    """Returns the directory of a shared tree: that of an image with this digest, or one that is no image."""
    tree = images / LAYERS / id / ROOTFS
    return tree if tree.is_dir() else images / id / ROOTFS


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of image.json.

    Attributes:
        format: see `FORMAT`.
        name: the name that it was built with.
        digest, environment, env, workdir, user, hostname, size, created, limits, timeouts, no_new_privileges, clock,
            random_seed, reseed, services: see `Image`.
        network: likewise, as text.
        task: see `Image`; only the specified settings.
        recipe: hash of the build's instructions, by which an unchanged image is found without building it.
        source: the folder with its description.
        build_seconds: the time that the build took.
        notes: the parts of its description that a sandbox does not implement, a line each.
        contents: names of loaded data, by their kind, such as databases.
        layers: the ids of the trees below its own, topmost first; see `shared_tree`.
        program: the program that it would run as a container.
    """

    format: int
    name: str
    digest: str
    recipe: str
    environment: str
    env: dict[str, str]
    workdir: str
    user: str
    hostname: str
    size: int
    created: float
    source: str
    build_seconds: float
    limits: ImageLimits = field(default_factory=ImageLimits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    no_new_privileges: bool = True
    clock: int | None = None
    random_seed: int | None = None
    reseed: str = ""
    notes: tuple[str, ...] = ()
    contents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    network: str = "none"
    task: dict[str, Any] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    services: Services = field(default_factory=Services)
    program: Program = field(default_factory=Program)

    def write(self, directory: Path) -> None:
        """Writes it into the image's directory."""
        (directory / MANIFEST).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Reads the manifest of the image in `directory`.

        Raises:
            TvsnapError: it is missing, damaged, or of another version of tvsnap.
        """
        try:
            values = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise TvsnapError(
                    f"image {directory.name[:12]} has format {values['format']} and this tvsnap reads {FORMAT}; "
                    f"remove it (tvsnap image rm {directory.name[:12]}) and build it again"
                )
                # Manifests of earlier versions lack newer fields.
            missing: dict[str, Any] = {"limits": {}, "timeouts": {}, "notes": ()}
            missing["contents"] = {"databases": values["databases"]} if values.get("databases") else {}
            missing |= {"clock": None, "random_seed": None, "reseed": "", "network": "none", "task": {}, "layers": ()}
            missing |= {"services": Services().to_json(), "program": asdict(Program())}
            missing["no_new_privileges"] = False  # as their sandboxes were recorded
            attributes = {field.name: (missing | values)[field.name] for field in fields(cls)}
            attributes["limits"] = ImageLimits(**attributes["limits"])
            attributes["timeouts"] = Timeouts(**attributes["timeouts"])
            attributes["notes"] = tuple(attributes["notes"])
            attributes["contents"] = {of: tuple(names) for of, names in attributes["contents"].items()}
            attributes["layers"] = tuple(attributes["layers"])
            attributes["services"] = Services.from_json(attributes["services"])
            attributes["program"] = Program.from_json(attributes["program"])
            Network.parse(attributes["network"])
            Task.of(attributes["task"])
            return cls(**attributes)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
            raise TvsnapError(
                f"image {directory.name[:12]} is damaged ({MANIFEST}: {error!r}); remove the directory {directory} "
                "and build it again"
            ) from error

    def image(self, directory: Path, name: str) -> Image:
        """Returns the image in `directory` under this name."""
        return Image(
            name=name,
            digest=self.digest,
            environment=self.environment,
            rootfs=directory / ROOTFS,
            env=self.env,
            workdir=self.workdir,
            user=self.user,
            size=self.size,
            created=self.created,
            hostname=self.hostname,
            limits=self.limits,
            timeouts=self.timeouts,
            no_new_privileges=self.no_new_privileges,
            clock=self.clock,
            random_seed=self.random_seed,
            reseed=self.reseed,
            network=Network.parse(self.network),
            task=Task.of(self.task),
            below=tuple(shared_tree(directory.parent, id) for id in self.layers),
            services=self.services,
        )
