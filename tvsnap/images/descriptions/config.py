"""The configuration of a container image, and which of its settings a sandbox ignores."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvsnap.model.services import HealthCheck, Program

_KEEPS_ALIVE = re.compile(
    r"sleep \S+|tail -[fF] /dev/null|cat|(ba|da|z)?sh( -\w+)*|while (true|:); ?do sleep \S+; ?done"
)
_BY_AN_INIT = re.compile(r"(\S*/)?(tini|dumb-init|catatonit|docker-init)( -\S+)* ")
_THROUGH_SHELL = re.compile(r"(\S*/)?(ba|da|z)?sh (-\w+ )*-\w*c (exec )?")
_RUN_IN_SERVICES = ("ENTRYPOINT ", "CMD ", "EXPOSE ", "HEALTHCHECK")


@dataclass(frozen=True, slots=True)
class BaseConfig:
    """The settings that come with a base; None if it has none.

    Attributes:
        env: environment variables.
        workdir, user: see `Image`.
        volumes: directories on which a container engine would mount something.
        notes: the settings that a sandbox ignores, a line each.
        program: its program as a container.
    """

    env: dict[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    volumes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    program: Program = field(default_factory=Program)

    @property
    def notes_of_service(self) -> tuple[str, ...]:
        """The notes that apply to a service; its program and health check are run."""
        return tuple(note for note in self.notes if not note.startswith(_RUN_IN_SERVICES))


def read_config(config: dict[str, Any]) -> BaseConfig:
    """Parses the `config` of an OCI image, or the one that the Docker Engine returns."""
    variables = config.get("Env")
    pairs = [str(item).partition("=") for item in variables] if isinstance(variables, list) else []
    volumes = config.get("Volumes")
    return BaseConfig(
        env={name: value for name, _, value in pairs if name},
        workdir=str(config["WorkingDir"]) if config.get("WorkingDir") else None,
        user=str(config["User"]) if config.get("User") else None,
        volumes=tuple(sorted(volumes)) if isinstance(volumes, dict) else (),
        notes=tuple(_unused(config)),
        program=_program(config),
    )


def _program(config: dict[str, Any]) -> Program:
    health = config.get("Healthcheck")
    ports = config.get("ExposedPorts")
    return Program(
        tuple(_words(config, "Entrypoint")),
        tuple(_words(config, "Cmd")),
        _health(health) if isinstance(health, dict) else None,
        tuple(sorted(int(number) for port in ports or {} if (number := str(port).partition("/")[0]).isdigit())),
    )


def _health(settings: dict[str, Any]) -> HealthCheck | None:
    test = health_test(_words(settings, "Test"))
    keys = {"interval": "Interval", "timeout": "Timeout", "start_period": "StartPeriod"}
    seconds = {
        name: settings[key] / 1e9 for name, key in keys.items() if isinstance(settings.get(key), int) and settings[key]
    }
    retries = settings.get("Retries")
    more = {"retries": retries} if isinstance(retries, int) and retries else {}
    return HealthCheck(test, **seconds, **more) if test else None


def health_test(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the command of a health check from its words, the first of which is its kind; empty for none."""
    kind, rest = (words[0], words[1:]) if words else ("NONE", [])
    if kind == "CMD-SHELL":
        return ("/bin/sh", "-c", " ".join(rest))
    return tuple(rest) if kind == "CMD" else ()


def _unused(config: dict[str, Any]) -> list[str]:
    notes = [note] if (note := unused_command(_words(config, "Entrypoint"), _words(config, "Cmd"))) else []
    if volumes := config.get("Volumes"):
        notes.append(f"VOLUME {' '.join(sorted(volumes))}: ordinary directories, part of every snapshot")
    if ports := config.get("ExposedPorts"):
        notes.append(f"EXPOSE {' '.join(sorted(ports))}: nothing outside a sandbox reaches its ports")
    if (config.get("Healthcheck") or {}).get("Test", ["NONE"]) != ["NONE"]:
        notes.append("HEALTHCHECK: not run")
    if config.get("StopSignal"):
        notes.append(f"STOPSIGNAL {config['StopSignal']}: not used; a sandbox ends at once")
    if shell := _words(config, "Shell"):
        notes.append(f"SHELL {json.dumps(shell)}: for the RUN steps of the Dockerfile only; a sandbox's shell is bash")
    if config.get("OnBuild"):
        notes.append("ONBUILD: only a Dockerfile that starts FROM the image runs it")
    return notes


def _words(config: dict[str, Any], key: str) -> list[str]:
    value = config.get(key)
    return [str(word) for word in value] if isinstance(value, list) else []


def unused_command(entrypoint: Sequence[str], command: Sequence[str]) -> str:
    """Returns a note that an image's main program is not run; empty if that would only keep its container alive.

    Args:
        entrypoint, command: ENTRYPOINT and CMD, or those of a Compose file, in words.
    """
    if keeps_alive(entrypoint, command):
        return ""
    parts = [f"ENTRYPOINT {json.dumps(list(entrypoint))}"] if entrypoint else []
    parts += [f"CMD {json.dumps(list(command))}"] if command else []
    return f"{', '.join(parts)}: not run; a sandbox begins with a shell, and a call can start it"


def keeps_alive(entrypoint: Sequence[str], command: Sequence[str]) -> bool:
    """Whether a main program only waits: a shell, an interpreter without a script, `sleep infinity` and the like."""
    words = [*entrypoint, *command]
    if len(words) <= 1 and not entrypoint:
        return True
    text = _BY_AN_INIT.sub("", " ".join(words).strip(), count=1)
    bare = _THROUGH_SHELL.sub("", text, count=1)
    return any(_KEEPS_ALIVE.fullmatch(_named(form)) for form in (text, bare))


def _named(command: str) -> str:
    """Returns a command with its program's name instead of its path."""
    program, _, rest = command.strip().partition(" ")
    return f"{program.rsplit('/', 1)[-1]} {rest}".strip()
