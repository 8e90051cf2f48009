"""Several services, as described by a Compose file or the key `services` of image.yaml."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from tvsnap.images.descriptions import values
from tvsnap.images.descriptions.config import health_test
from tvsnap.images.descriptions.service_spec import MAIN, ServiceSettings
from tvsnap.images.descriptions.spec import NAME, Base, DockerImageBase, ImageBase, ImageSpec
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.services import Condition, HealthCheck
from tvsnap.plugins.tasks.compose_service import HARNESS, Service, Strings

MAIN_NAMES = ("main", "client")
"""The names in benchmarks for the service that an agent works in."""
_IMAGE_YAML = "image.yaml"
_ABOUT_MAIN = ("volumes", "networks", "links", "depends_on", "container_name", "hostname")
"""Keys for the main service below `services` in image.yaml, which has separate keys for the rest."""

_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_PART_OF_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(h|ms|us|µs|ns|m|s)", re.ASCII)
_LAST_PORT = 65_535
_UNITS = {"h": 3600e9, "m": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}
"""Nanoseconds, of which Compose counts whole ones."""


def _duration(value: object) -> float:
    text = values.scalar(value)
    if not text or _PART_OF_DURATION.sub("", text):
        raise ValueError
    return round(sum(float(number) * _UNITS[unit] for number, unit in _PART_OF_DURATION.findall(text))) / 1e9


def _conditions(value: object) -> object:
    return {str(name): {} for name in value} if isinstance(value, list) else value


def _aliases(value: object) -> object:
    """Returns the names that a service's networks give it."""
    networks = value.values() if isinstance(value, dict) else ()
    return [alias for network in networks if isinstance(network, dict) for alias in network.get("aliases") or ()]


def _ports(value: object) -> object:
    """Returns the inner ports that are published or exposed."""
    targets = [one.get("target") if isinstance(one, dict) else one for one in value] if isinstance(value, list) else []
    ranges = (str(one).rpartition(":")[2].partition("/")[0].partition("-") for one in targets)
    return [
        port
        for first, _, last in ranges
        if first.isdigit() and (last or first).isdigit() and int(last or first) <= _LAST_PORT
        for port in range(int(first), int(last or first) + 1)
    ]


_Seconds = Annotated[float, Field(ge=0), BeforeValidator(_duration), values.must_be("a time as 1m30s or 500ms")]
_Retries = Annotated[int, Field(ge=0), BeforeValidator(values.scalar), values.must_be("how many checks may fail")]


class _Health(values.Loose):
    test: values.Many[values.Text] = ()
    interval: _Seconds = 30.0
    timeout: _Seconds = 30.0
    retries: _Retries = 3
    start_period: _Seconds = 0.0
    disable: bool = False

    @model_validator(mode="before")
    @classmethod
    def one_text(cls, value: Any) -> Any:
        """Treats a string as a shell command."""
        if isinstance(value, dict) and isinstance(test := value.get("test"), str):
            return {**value, "test": ["CMD-SHELL", test]}
        return value

    @field_validator("test")
    @classmethod
    def check_kind(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        """Rejects a list that does not begin with its kind."""
        if words and words[0] not in ("CMD", "CMD-SHELL", "NONE"):
            raise ValueError(f"must begin with CMD, CMD-SHELL or NONE, not {words[0]!r}")
        return words

    @property
    def check(self) -> HealthCheck | None:
        command = health_test(self.test)
        if not command:
            return None
        default = _Health()  # which engines take for zeros
        return HealthCheck(
            command,
            self.interval or default.interval,
            self.timeout or default.timeout,
            self.retries or default.retries,
            self.start_period,
        )


class _Dependency(values.Loose):
    condition: Annotated[
        Condition,
        values.must_be("service_started, service_healthy or service_completed_successfully"),
    ] = "service_started"
    required: bool = True


class Member(Service):
    """One of several services."""

    depends_on: Annotated[dict[str, _Dependency], BeforeValidator(_conditions)] = Field(default={})
    healthcheck: _Health | None = None
    ports: Annotated[list[int], BeforeValidator(_ports)] = Field(default=[])
    expose: Annotated[list[int], BeforeValidator(_ports)] = Field(default=[])
    networks: Annotated[list[values.Scalar], BeforeValidator(_aliases)] = Field(default=[])
    links: Strings = ()
    container_name: values.Scalar | None = None
    profiles: Any = None
    restart: values.Scalar = "no"

    def not_done(self) -> Iterator[str]:
        """See `Service.not_done`."""
        yield from super().not_done()
        if self.restart != "no":
            yield f"restart {self.restart}: not followed; a service that ends stays ended"

    def settings(self, name: str, volumes: Iterable[str]) -> ServiceSettings:
        """Returns its settings besides its files."""
        aliases = (*self.networks, *filter(None, (self.container_name, self.hostname)))
        fields = self.model_fields_set
        return ServiceSettings(
            name,
            tuple(dict.fromkeys(alias for alias in aliases if alias != name)),
            self.entrypoint if "entrypoint" in fields else None,
            self.command if "command" in fields else None,
            {other: about.condition for other, about in self.depends_on.items()},
            self.healthcheck.check if self.healthcheck else None,
            bool(self.healthcheck and (self.healthcheck.disable or (self.healthcheck.test[:1] == ("NONE",)))),
            tuple(dict.fromkeys((*self.ports, *self.expose))),
            {one.source: one.target for one in self.volumes if one.source in set(volumes)},
        )


def _names(services: object) -> object:
    if isinstance(services, dict):
        for name in services:
            if not _SERVICE_NAME.fullmatch(str(name)):
                raise values.wrong_key(name, "cannot be the name of a service: at most 40 letters, digits, _ and -")
    return services


def _consistent(services: dict[str, Member]) -> dict[str, Member]:
    for name, member in services.items():
        for other, about in list(member.depends_on.items()):
            if other not in services and not about.required:
                del member.depends_on[other]
            elif other not in services:
                raise ValueError(f"{name} depends on {other}, which is no service; have: {values.listed(services)}")
        for link in member.links:  # all services see the same names
            other, _, alias = link.partition(":")
            if alias and alias != other:
                raise values.wrong_key(
                    name, f"links: {link}: give {other} that name by an alias of a network of its own instead"
                )
    try:
        graphlib.TopologicalSorter({name: list(member.depends_on) for name, member in services.items()}).prepare()
    except graphlib.CycleError as error:
        raise ValueError(f"depends_on: each of these waits for another: {values.listed(error.args[1])}") from None
    return services


class _Several(values.Loose):
    services: Annotated[dict[str, Member], BeforeValidator(_names), AfterValidator(_consistent)]
    volumes: dict[str, Any] = Field(default={})


def in_use(services: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the services that are started if no profile is named."""
    return {
        str(name): service
        for name, service in services.items()
        if not (isinstance(service, dict) and service.get("profiles"))
    }


def check_services(path: Path, document: dict[str, Any], place: values.Place) -> _Several:
    """Reads the services of a Compose file, and the volumes and networks that they share.

    Raises ImageSpecError if one is wrong, waits for itself or for a missing one, or uses a volume or a network
    that the file does not declare.

    Args:
        path: of the file.
        document: its contents, without unused services.
        place: the context of checks.
    """
    file = values.read(_Several, path, document, place)
    for name, member in file.services.items():
        networks = document["services"][name].get("networks") if isinstance(document["services"][name], dict) else None
        used = {
            "volumes": [one.source for one in member.volumes if _is_name(one.source) and one.source != HARNESS],
            "networks": [str(one) for one in networks or () if one != "default"],
        }
        for kind, names in used.items():
            declared = document.get(kind) or ()
            for one in names:
                if one not in declared:
                    raise ImageSpecError(
                        f"{path}: services.{name}.{kind}: {one} is not declared; add it to {kind} of the whole file"
                    )
    return file


def read_several(
    spec: ImageSpec, path: Path, document: dict[str, Any], place: values.Place
) -> tuple[ImageSpec, Service, Sequence[Service]]:
    """Reads a Compose file with several services.

    Returns the spec with all services except the main one, the main one, and the descriptions of the others. Raises
    ImageSpecError if the file is wrong, or if none of the services is the main one.

    Args:
        spec: the task's.
        path: of the file.
        document: its contents, without unused services.
        place: the context of checks.
    """
    file = check_services(path, document, place)
    main = next((name for name in MAIN_NAMES if name in file.services), None)
    if main is None:
        raise ImageSpecError(
            f"{path}: services: one of them must be called {' or '.join(MAIN_NAMES)}, the one that the agent works in; "
            f"have: {values.listed(file.services)}"
        )
    others = tuple(
        (_spec_of(spec, path, name, member, place), member.settings(name, file.volumes))
        for name, member in file.services.items()
        if name != main
    )
    member = file.services[main]
    if member.healthcheck is not None:
        place.notes.append("healthcheck: not run for the main service, which begins with a shell")
    spec = replace(spec, services=others, main=member.settings(main, file.volumes))
    return spec, member, [one for name, one in file.services.items() if name != main]


def _spec_of(spec: ImageSpec, path: Path, name: str, member: Member, place: values.Place) -> ImageSpec:
    """Returns the spec of a service's files."""
    base: Base | None = member.build or (DockerImageBase(member.image) if member.image else None)
    if base is None:
        raise ImageSpecError(f"{path}: services.{name}: needs build or image")
    own_place = replace(place, notes=[])
    service = ImageSpec(spec.folder, f"{spec.name}.{name}", "terminal", base, is_service=True)
    return _with_member(service, name, member, own_place)


def _with_member(spec: ImageSpec, name: str, member: Member, place: values.Place) -> ImageSpec:
    """Adds a service's description to the spec of its base."""
    files, directories = member.mounts(place)
    notes = [*member.not_done(), *place.notes]
    return replace(
        spec,
        env={**spec.env, **member.variables(place)},
        workdir=member.working_dir or spec.workdir,
        user=member.user or spec.user,
        directories=(*spec.directories, *directories),
        files=(*spec.files, *files),
        notes=(*spec.notes, *(f"service {name}: {note}" for note in notes)),
    )


# -- image.yaml ------------------------------------------------------------------------------------------------------


Load = Callable[[Path, Sequence[Path]], ImageSpec]
"""Reads an image.yaml; see `image_yaml.load_image_yaml`."""


def read_services(mapping: object, info: ValidationInfo, load: Load) -> dict[str, Any]:
    """Reads the key `services` of image.yaml; returns the fields of the spec that follow from it.

    Args:
        mapping: the value of the key.
        info: the context of the check.
        load: reads the image.yaml of a service that has one of its own.
    """
    place = values.place_of(info)
    if not isinstance(mapping, dict) or not mapping:
        raise ValueError(f"must be a mapping of names to services, not {values.kind(mapping)}")
    document = {str(name): dict(one) if isinstance(one, dict) else one or {} for name, one in mapping.items()}
    bases = {name: _take_base(name, one, place) for name, one in document.items() if isinstance(one, dict)}
    members = _Several.model_validate(
        {"services": {MAIN.name: {}, **document}}, context=replace(place, notes=[])
    ).services
    main = members.pop(MAIN.name)
    for key in document.get(MAIN.name, {}):
        if key not in _ABOUT_MAIN:
            raise values.wrong_key(
                MAIN.name, f"{key}: image.yaml has keys of its own for that; here: {values.listed(_ABOUT_MAIN)}"
            )
    volumes = {one.source for member in (main, *members.values()) for one in member.volumes if _is_name(one.source)}
    services = []
    for name, member in members.items():
        own_place = replace(place, notes=[])
        base = bases[name] or member.build
        if base is None:
            raise values.wrong_key(name, "needs build, image or docker_image")
        spec = _made_from(f"{place.folder.name}.{name}", base, place, load)
        services.append((_with_member(spec, name, member, own_place), member.settings(name, volumes)))
    if not services:
        raise ValueError("names no service beside the main one")
    return {"services": tuple(services), "main": main.settings(MAIN.name, volumes)}


def _is_name(source: str) -> bool:
    return bool(source) and not source.startswith((".", "/", "~"))


def _take_base(name: str, service: dict[str, Any], place: values.Place) -> Base | Path | None:
    """Removes from a service, and returns, the base in forms that Compose lacks or writes differently."""
    if (image := service.pop("docker_image", None)) is not None:
        return DockerImageBase(str(image))
    image = service.get("image")
    if isinstance(image, str) and re.fullmatch(NAME, image) and not service.get("build"):
        service.pop("image")
        return ImageBase(image)
    if isinstance(image, str) and not service.get("build"):
        service.pop("image")
        return DockerImageBase(image)
    build = service.get("build")
    if isinstance(build, str) and (path := place.here / build / _IMAGE_YAML).is_file():
        if not path.resolve().is_relative_to(place.folder.resolve()):
            raise values.wrong_key(name, f"{path} lies outside the image's folder; copy it there")
        service.pop("build")
        return path
    return None


def _made_from(name: str, base: Base | Path, place: values.Place, load: Load) -> ImageSpec:
    if isinstance(base, Path):
        spec = load(base, place.allow)
        if spec.services:
            raise ValueError(f"{base}: a service cannot have services of its own")
        return replace(spec, is_service=True)
    environment = "" if isinstance(base, ImageBase) else "terminal"
    return ImageSpec(place.folder, name, environment, base, hostname=environment and "sandbox", is_service=True)
