"""Reads image.yaml."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    create_model,
    model_validator,
)

from tvsnap.host import plugins
from tvsnap.images.descriptions import spec
from tvsnap.images.descriptions.dockerfile_part import DockerfilePart, Variables
from tvsnap.images.descriptions.document import load_yaml
from tvsnap.images.descriptions.values import (
    UNSAID,
    Account,
    Hostname,
    ImageReference,
    InsidePath,
    Many,
    Moment,
    Part,
    Place,
    Processors,
    Seconds,
    Size,
    Text,
    existing,
    listed,
    must_be,
    read,
    scalar,
    word,
    wrong_key,
)
from tvsnap.images.errors import ImageSpecError
from tvsnap.images.loaders import check_data, loaders
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits, Timeouts
from tvsnap.model.network import Network

_EARLIEST = 631_152_000
"""1990, in seconds since 1970."""

_OCI = "an OCI layout (a directory, or a tar of one), or an archive of docker save"
_OURS = "a file or directory in the image's folder"


def load_image_yaml(path: Path, allow: Sequence[Path]) -> spec.ImageSpec:
    """Reads an image.yaml; see `load_source` for `allow`. Raises ImageSpecError if it is missing or wrong."""
    folder = path.parent
    document = load_yaml(path)
    fields = read(_model(document), path, document, Place(folder, path, tuple(allow))).said()
    fields["data"] = {key: value for key in fields.keys() - _Spec.model_fields.keys() if (value := fields.pop(key))}
    base = next(fields.pop(key) for key in _BASES if key in fields)
    fields.update(fields.pop("services", {}))
    if isinstance(base, spec.ImageBase):
        fields = {"environment": "", "hostname": "", **fields}
    image = spec.ImageSpec(**{"folder": folder, "name": folder.name, "environment": "terminal", "base": base, **fields})
    about = "name (by default the folder's): "
    try:
        spec.check_name(image.name)
        about = ""
        if image.environment:
            check_data(image.environment, image.data)
    except UsageError as error:
        raise ImageSpecError(f"{path}: {about}{error}") from None
    return image


def _model(document: Any) -> type[_Spec]:
    """Returns the model of an image.yaml; if that has unknown keys, the keys that loaders read are added."""
    if not isinstance(document, dict) or document.keys() <= _Spec.model_fields.keys():
        return _Spec
    all_loaders = loaders()
    others = [one for name, one in all_loaders.items() if name != document.get("environment")]
    own = [one for name, one in all_loaders.items() if name == document.get("environment")]
    keys = {key: (type, UNSAID) for one in (*others, *own) for key, type in one.keys.items()}
    more: Any = {key: field for key, field in keys.items() if key not in _Spec.model_fields}
    return create_model("_Extended", __base__=_Spec, **more)


def _is_there(path: Path) -> bool:
    return path.is_dir() or path.is_file()


def _past(moment: int) -> int:
    if moment < _EARLIEST:
        raise ValueError("must not be before 1990: clocks that count from a machine's start must not be taken for it")
    if moment > time.time():
        raise ValueError(
            "must not be in the future: the image's own files have times, too; take a time that has passed"
        )
    return moment


def _not_empty(command: str) -> str:
    if not command.strip():
        raise ValueError("is an empty command")
    return command


Name = Annotated[str, word(spec.NAME, spec.NAME_RULE)]
Package = Annotated[str, word("[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?", "a package's name")]


class _Debian(Part):
    suite: Annotated[str, word("[a-z0-9][a-z0-9.-]*", "a suite's name as bookworm")] = UNSAID
    mirror: Annotated[str, word(r"(https?|file|ftp)://?\S+", "an archive's address as http://...")] = UNSAID


class _Oci(Part):
    short = "path"
    path: Annotated[Path, existing(_OCI, _is_there, allow=True)] = Field(description=_OCI)
    tag: Text = UNSAID


class _DockerImage(Part):
    short = "image"
    image: ImageReference = Field(description="an image's reference or id, as debian:bookworm-slim")
    pull: Annotated[str, word("missing|always|never", "missing, always or never")] = UNSAID


class _Limits(Part):
    memory: Size = UNSAID
    processes: Annotated[int, Field(gt=1), BeforeValidator(scalar), must_be("how many processes there may be")] = UNSAID
    cpus: Processors = UNSAID
    disk: Size = UNSAID


class _Timeouts(Part):
    agent: Seconds = UNSAID
    verifier: Seconds = UNSAID


class _File(Part):
    source: Annotated[Path, existing(_OURS, _is_there)] = UNSAID
    content: Text = UNSAID
    dest: InsidePath = Field(description="the absolute path inside the image")
    mode: Annotated[str, word("0?[0-7]{3,4}", 'octal digits in quotes as "0644"')] = UNSAID
    owner: Account = UNSAID


def _file(
    dest: str, source: Path | None = None, content: str | None = None, mode: str = "", owner: str = "root"
) -> spec.FileCopy:
    if (source is None) == (content is None):
        raise UsageError(f"needs exactly one of source ({_OURS}) and content (text)")
    if dest.endswith("/"):
        if source is None:
            raise wrong_key("dest", "must name the file, not end with /")
        if not source.is_dir():
            dest += source.name
    if mode and source is not None and source.is_dir():
        raise wrong_key("mode", "is for single files; a directory's entries keep their own modes")
    return spec.FileCopy(source, content, dest, int(mode, 8) if mode else None, owner)


def _network(value: Any) -> Network:
    if isinstance(value, dict) and value.keys() == {"allow"} and isinstance(value["allow"], list):
        value = value["allow"]
    elif value not in ("none", "public"):
        raise ValueError("must be none, public, or {allow: [HOST, .SUFFIX, ...]}")
    try:
        return Network.of(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _services(services: object, info: ValidationInfo) -> dict[str, Any]:
    fields: dict[str, Any] = plugins.find("image services", "compose")(services, info, load_image_yaml)
    return fields


class _Spec(Part):
    name: Name = UNSAID
    environment: Name = UNSAID
    debian: Annotated[  # an empty `debian:` is allowed
        Any, _Debian.to(spec.DebianBase), BeforeValidator(lambda value: {} if value is None else value)
    ] = UNSAID
    directory: Annotated[
        Any,
        existing("a directory with a root filesystem", Path.is_dir, allow=True),
        AfterValidator(spec.DirectoryBase),
    ] = UNSAID
    tar: Annotated[Any, existing("a tar archive", Path.is_file, allow=True), AfterValidator(spec.TarBase)] = UNSAID
    oci: Annotated[Any, _Oci.to(spec.OciBase)] = UNSAID
    dockerfile: Annotated[Any, DockerfilePart.to(spec.DockerfileBase)] = UNSAID
    docker_image: Annotated[Any, _DockerImage.to(spec.DockerImageBase)] = UNSAID
    image: Annotated[Any, word(spec.NAME, "the name of an image of tvsnap's"), AfterValidator(spec.ImageBase)] = UNSAID
    packages: Annotated[Many[Package], AfterValidator(lambda packages: tuple(dict.fromkeys(packages)))] = UNSAID
    files: Many[Annotated[spec.FileCopy, _File.to(_file)]] = UNSAID
    run: Many[Annotated[Text, must_be("a shell command"), AfterValidator(_not_empty)]] = UNSAID
    env: Variables = UNSAID
    workdir: Annotated[InsidePath, AfterValidator(lambda path: str(PurePosixPath(path)))] = UNSAID
    user: Account = UNSAID
    hostname: Hostname = UNSAID
    limits: Annotated[ImageLimits, _Limits.to(ImageLimits)] = UNSAID
    timeouts: Annotated[Timeouts, _Timeouts.to(Timeouts)] = UNSAID
    no_new_privileges: Annotated[bool, Field(strict=True)] = UNSAID
    clock: Annotated[Moment, AfterValidator(_past)] = UNSAID
    random_seed: Annotated[
        int, Field(strict=True, ge=0, lt=1 << 64), must_be(f"a whole number from 0 to {(1 << 64) - 1}")
    ] = UNSAID
    reseed: Annotated[Text, must_be("a shell command"), AfterValidator(_not_empty)] = UNSAID
    network: Annotated[Any, AfterValidator(_network)] = UNSAID
    services: Annotated[dict[str, Any], PlainValidator(_services)] = UNSAID

    @model_validator(mode="before")
    @classmethod
    def has_one_base(cls, value: Any) -> Any:
        """Checks that exactly one key names the image's base."""
        if isinstance(value, dict) and value.keys() <= cls.model_fields.keys() and len(value.keys() & _BASES) != 1:
            raise ValueError(f"exactly one of these keys must say what the image starts from: {listed(_BASES)}")
        return value


_BASES = ("debian", "directory", "tar", "oci", "dockerfile", "docker_image", "image")
