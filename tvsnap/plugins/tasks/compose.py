"""Docker Compose files of benchmarks that describe a task's containers, as far as a sandbox can do the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import Field

from tvsnap.images.descriptions import values
from tvsnap.images.descriptions.document import load_yaml
from tvsnap.images.descriptions.spec import DockerImageBase, ImageSpec
from tvsnap.images.descriptions.variables import expand
from tvsnap.images.errors import ImageSpecError
from tvsnap.model.images import ImageLimits
from tvsnap.model.network import NO_NETWORK
from tvsnap.plugins.tasks.compose_files import read_compose
from tvsnap.plugins.tasks.compose_service import Service
from tvsnap.plugins.tasks.compose_services import check_services, in_use, read_several
from tvsnap.plugins.tasks.env_file import read_env_file

COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


class _Compose(values.Loose):
    services: dict[str, Service] = Field(default={})


def find_compose(folder: Path, names: Sequence[str] = COMPOSE_FILES) -> Path | None:
    """Returns the Compose file of a folder by the first of these names that exists; None if it has none."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def with_compose(spec: ImageSpec, path: Path, harness: Mapping[str, str], main: str = "") -> ImageSpec:
    """Adds the contents of a Compose file to a task's spec; all files for a build must be in the task's folder.

    Raises ImageSpecError if the file is wrong, or describes something that no sandbox can do.

    Args:
        spec: the task's.
        path: of the Compose file.
        harness: variables that the benchmark sets. Others come from the file `.env` beside the Compose file, and never
            from this machine's environment, on which a task must not depend.
        main: the service that the benchmark adds if the file lacks it; "" for none.
    """
    missing: list[str] = []
    variables = {**read_env_file(path.parent / ".env", harness), **harness}
    variables.setdefault("COMPOSE_PROJECT_NAME", _project_name(path, variables))
    document = read_compose(path, spec.folder, variables, missing.append)
    notes: list[str] = []
    document = _with_lent(document, path, variables, notes)
    if main and isinstance(document, dict) and isinstance(services := document.get("services") or {}, dict):
        document = {**document, "services": {main: None, **services}}
    place = values.Place(spec.folder, path, variables=variables)
    place.notes.extend(notes)
    spec, service, others = _services(spec, path, document, place)
    base = service.build or (DockerImageBase(service.image) if service.image else spec.base)
    copied, directories = service.mounts(place)
    return replace(
        spec,
        base=base,
        env={**service.variables(place), **spec.env},
        workdir=spec.workdir or service.working_dir,
        user=spec.user or service.user,
        hostname=service.hostname or spec.hostname,
        network=NO_NETWORK if service.network_mode == "none" else spec.network,
        directories=directories,
        files=copied,
        limits=_total_limits(ImageLimits(**{**spec.limits.said(), **service.limits.said()}), others),
        no_new_privileges=_no_new_privileges(service, place),
        runs=replace(
            spec.main,
            entrypoint=service.entrypoint if "entrypoint" in service.model_fields_set else None,
            command=service.command if "command" in service.model_fields_set else None,
        ),
        runs_as=service.user,
        notes=(
            *spec.notes,
            *service.not_done(),
            *place.notes,
            *(f"${name}: not set, so it is empty" for name in dict.fromkeys(missing)),
        ),
    )


def _project_name(path: Path, variables: Mapping[str, str]) -> str:
    """Returns Compose's name for the project of a file: its `name`, or else the name of its folder."""
    document = load_yaml(path, of_compose=True)
    name_in_file = document.get("name") if isinstance(document, dict) else None
    name = expand(name_in_file, variables) if isinstance(name_in_file, str) else path.resolve().parent.name
    return re.sub("[^-_a-z0-9]", "", name.lower()).lstrip("_-")


_LENT = {"secrets": "/run/secrets", "configs": "/"}
"""Kinds of files that Compose lends to services, and their directories."""


_READABLE = 0o444


def _with_lent(document: Any, path: Path, variables: Mapping[str, str], notes: list[str]) -> Any:
    """Returns a document in which services mount the secrets and configs that name a file, a text or a variable.

    Other entries stay as they are. As with Compose, `mode`, `uid` and `gid` apply to texts and variables, but not to
    files, which are mounted as they are.
    """
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict):
        return document
    return {
        **document,
        "services": {name: _lent_to(one, document, path, variables, notes) for name, one in services.items()},
    }


def _lent_to(service: Any, document: dict[str, Any], path: Path, variables: Mapping[str, str], notes: list[str]) -> Any:
    if not isinstance(service, dict) or not isinstance(service.get("volumes") or [], list):
        return service
    result, volumes = dict(service), list(service.get("volumes") or [])
    for kind, place in _LENT.items():
        about: Any = document.get(kind)
        about = about if isinstance(about, dict) else {}
        others = []
        for entry in result.get(kind) or [] if isinstance(result.get(kind), list) else []:
            settings = entry if isinstance(entry, dict) else {"source": entry}
            source = str(settings.get("source"))
            mount = _mount_of(about.get(source), path.parent, variables)
            if mount is None:
                others.append(entry)
                continue
            if "content" in mount:
                mount |= _access(settings, f"{path}: {kind}: {source}")
            elif unused := [key for key in ("mode", "uid", "gid") if settings.get(key) is not None]:
                notes.append(
                    f"{kind}: {source}: {', '.join(unused)}: not used: its file keeps its own, as with Compose"
                )
            volumes.append({**mount, "target": str(PurePosixPath(place, str(settings.get("target") or source)))})
        if isinstance(result.get(kind), list):
            result[kind] = others
    return {**result, "volumes": volumes} if volumes else result


def _access(settings: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns the mode and the owner of a file in a service's entry; `where` is the entry, for messages."""
    try:
        mode = settings.get("mode", _READABLE)
        mode = mode if isinstance(mode, int) else int(mode, 8)
        owner = [int(settings.get(key) or 0) for key in ("uid", "gid")]
        if not 0 <= mode <= 0o7777 or min(owner) < 0:
            raise ValueError
    except (TypeError, ValueError):
        raise ImageSpecError(f"{where}: mode must be octal digits as 0440, uid and gid numbers") from None
    return {"mode": mode, "owner": f"{owner[0]}:{owner[1]}"}


def _mount_of(about: Any, here: Path, variables: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the mount for a secret or config; None if it is not here."""
    about = about if isinstance(about, dict) else {}
    content = about.get("content", variables.get(str(about.get("environment"))))
    if isinstance(content, str):
        return {"content": content}
    file = about.get("file")
    if isinstance(file, str) and (here / file).is_file():
        return {"source": file if file.startswith((".", "/", "~")) else f"./{file}"}
    return None


def _services(
    spec: ImageSpec, path: Path, document: Any, place: values.Place
) -> tuple[ImageSpec, Service, Sequence[Service]]:
    """Returns the spec with the other services, the main service, and the descriptions of the others."""
    services = document.get("services") if isinstance(document, dict) else None
    if isinstance(services, dict):
        document = {**document, "services": in_use(services)}
        unused = services.keys() - document["services"].keys()
        place.notes.extend(f"service {name}: has a profile, and is not started" for name in sorted(unused))
        if len(document["services"]) > 1:
            return read_several(spec, path, document, place)
        check_services(path, document, replace(place, notes=[]))  # for one alone, some keys are only noted
    entries = values.read(_Compose, path, document, place).services
    if len(entries) != 1:
        raise ImageSpecError(f"{path}: services: describes none")
    (service,) = entries.values()
    return spec, service, ()


def _total_limits(main: ImageLimits, others: Sequence[Service]) -> ImageLimits:
    """Adds to the main service's limits those of the others; a limit that the main one lacks stays unset."""
    limits = [member.limits for member in others]

    def total(kind: Literal["memory", "processes", "cpus", "disk"]) -> Any:
        own = getattr(main, kind)
        return None if own is None else own + sum(getattr(one, kind) or 0 for one in limits)

    return ImageLimits(total("memory"), total("processes"), total("cpus"), total("disk"))


def _no_new_privileges(service: Service, place: values.Place) -> bool | None:
    """Returns the value in the security options; None if they have none. Others are not applied."""
    result = None
    for option in service.security_opt:
        name, _, value = option.replace("=", ":").partition(":")
        if name == "no-new-privileges":
            result = value.lower() in ("", "true", "1")
        else:
            place.notes.append(f"security_opt {option}: not applied: a sandbox has its own confinement")
    return result
