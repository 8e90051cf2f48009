"""Compose files of several parts come to what `docker compose config` makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tvsnap.images import ImageSpecError
from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.spec import DockerfileBase, FileCopy
from tvsnap.plugins.tasks.compose_files import read_compose


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "compose.yaml"


def contents(folder: Path, files: dict[str, str], **known: str) -> Any:
    return read_compose(write(folder, files), folder, known, lambda name: None)


def extended(folder: Path, base: str, own: str) -> Any:
    """What becomes of a service with these lines, where it extends one with others."""
    document = {"services": {"a": yaml.safe_load(base), "b": {"extends": "a", **yaml.safe_load(own)}}}
    return contents(folder, {"compose.yaml": yaml.safe_dump(document)})["services"]["b"]


@pytest.mark.parametrize(
    ("base", "own", "result"),
    [
        ("{image: x, user: a}", "{user: b}", "{image: x, user: b}"),
        ("{environment: [A=1, B=2, C]}", "{environment: {B: 3}}", "{environment: {A: '1', B: 3, C: }}"),
        ("{environment: {build: a, command: b}}", "{environment: {build: c}}", "{environment: {build: c, command: b}}"),
        ("{command: [a, b]}", "{command: [c]}", "{command: [c]}"),
        ("{healthcheck: {test: [CMD, a], retries: 2}}", "{healthcheck: {test: [CMD, b]}}",
         "{healthcheck: {test: [CMD, b], retries: 2}}"),
        ("{build: web}", "{build: {target: run, args: [A=1]}}", "{build: {context: web, target: run, args: [A=1]}}"),
        ("{build: {args: {A: 1}}}", "{build: {args: [B=2]}}", "{build: {args: {A: 1, B: '2'}}}"),
        ("{volumes: ['x:/a', 'y:/b:ro']}", "{volumes: [{source: z, target: /b}]}",
         "{volumes: ['x:/a', {source: z, target: /b}]}"),
        ("{expose: [80], env_file: a}", "{expose: [80, 81], env_file: [b]}", "{expose: [80, 81], env_file: [a, b]}"),
        ("{depends_on: [x, y]}", "{depends_on: {x: {condition: service_healthy}}}",
         "{depends_on: {x: {condition: service_healthy}, y: {condition: service_started}}}"),
        ("{networks: [x]}", "{networks: {y: {aliases: [z]}}}", "{networks: {x: , y: {aliases: [z]}}}"),
        ("{environment: {A: 1}}", "{environment: }", "{environment: {A: 1}}"),
    ],
)  # fmt: skip
def test_a_service_on_top_of_the_one_that_it_extends(tmp_path: Path, base: str, own: str, result: str) -> None:
    assert extended(tmp_path, base, own) == yaml.safe_load(result)


def test_paths_begin_at_the_file_that_they_stand_in(tmp_path: Path) -> None:
    files = {
        "compose.yaml": "services: {a: {extends: {service: b, file: sub/one.yaml}, volumes: ['./own:/own']}}",
        "sub/one.yaml": "services: {b: {extends: {service: c, file: deep/two.yaml}, build: {dockerfile: D}}}",
        "sub/deep/two.yaml": """
services:
  c:
    build: {context: ..}
    env_file: [vars, {path: ../more, required: false}]
    volumes: ['./data:/data', 'named:/named', '/host:/host', {type: bind, source: f, target: /f}]
""",
    }
    assert contents(tmp_path, files)["services"]["a"] == {
        "build": {"context": "./sub", "dockerfile": "D"},
        "env_file": ["./sub/deep/vars", {"path": "./sub/more", "required": False}],
        "volumes": [
            "./sub/deep/data:/data",
            "named:/named",
            "/host:/host",
            {"type": "bind", "source": "./sub/deep/f", "target": "/f"},
            "./own:/own",
        ],
    }


def test_included_files_have_variables_and_paths_of_their_own(tmp_path: Path) -> None:
    files = {
        "compose.yaml": """
include: [db/compose.yaml, {path: [web/a.yaml, web/b.yaml], env_file: web.env}]
services: {main: {}}
""",
        "db/compose.yaml": "{services: {db: {image: 'pg:$V', user: $U, secrets: [s]}}, secrets: {s: {file: s.txt}}}",
        "db/.env": "V=16\nU=inner\n",
        "web/a.yaml": "services: {web: {build: ., command: [a], environment: {W: $W}}}",
        "web/b.yaml": "services: {web: {command: [b]}}",
        "web.env": "W=said\n",
    }
    assert contents(tmp_path, files, U="outer") == {
        "services": {
            "main": {},
            "db": {"image": "pg:16", "user": "outer", "secrets": ["s"]},
            "web": {"build": {"context": "./web"}, "command": ["b"], "environment": {"W": "said"}},
        },
        "secrets": {"s": {"file": "./db/s.txt"}},
    }


def test_one_name_for_two_things_is_refused(tmp_path: Path) -> None:
    files = {"compose.yaml": "{include: [a.yaml, b.yaml]}", "a.yaml": "services: {x: {image: a}}"}
    assert contents(tmp_path, {**files, "b.yaml": files["a.yaml"]}) == {"services": {"x": {"image": "a"}}}
    with pytest.raises(
        ImageSpecError, match=r"include: services.x is described by .*b.yaml, and differently elsewhere"
    ):
        contents(tmp_path, {**files, "b.yaml": "services: {x: {image: b}}"})


def test_files_that_lead_back_or_without_end_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": "include: [b.yaml]", "b.yaml": "include: [./a.yaml]"})
    with pytest.raises(ImageSpecError, match=r"b.yaml: include: .*a.yaml includes itself, by way of: .*compose.yaml"):
        contents(tmp_path, {"compose.yaml": "include: [a.yaml]"})
    many = {f"{n}.yaml": f"include: [{n + 1}.yaml, {n + 1}.yaml]" for n in range(20)}
    with pytest.raises(ImageSpecError, match="include: more than 100 files"):
        contents(tmp_path, {**many, "20.yaml": "{}", "compose.yaml": "include: [0.yaml]"})
    services = {f"s{n}": {"extends": f"s{n + 1}"} for n in range(2000)}
    with pytest.raises(ImageSpecError, match="extends itself, by way of"):
        contents(tmp_path, {"compose.yaml": yaml.safe_dump({"services": {**services, "s2000": {}}})})


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("services: {x: {image: a}}")
    (tmp_path / "task").mkdir()
    (tmp_path / "task/in.yaml").symlink_to(tmp_path / "outside.yaml")
    with pytest.raises(ImageSpecError, match="lies outside the image's folder"):
        contents(tmp_path / "task", {"compose.yaml": "include: [in.yaml]"})


def test_a_task_of_several_files(tmp_path: Path) -> None:
    files = {
        "task.yaml": "instruction: x\n",
        "docker-compose.yaml": """
include: [db/compose.yaml]
services: {client: {extends: {service: base, file: base/c.yaml}}}
""",
        "base/c.yaml": "services: {base: {build: ., env_file: vars, volumes: ['./f:/srv/f']}}",
        "base/Dockerfile": "FROM a\n",
        "base/vars": "A=1\n",
        "base/f": "f",
        "db/compose.yaml": "{services: {db: {image: 'postgres:16', configs: [c]}}, configs: {c: {file: ./conf}}}",
        "db/conf": "c",
    }
    write(tmp_path, files)
    spec = load_source(tmp_path)
    assert isinstance(spec.base, DockerfileBase)
    assert spec.base.path.resolve() == tmp_path / "base/Dockerfile"
    assert spec.env == {"A": "1"}
    assert spec.files == (FileCopy(tmp_path / "base/f", None, "/srv/f"),)
    ((db, settings),) = spec.services
    assert (settings.name, db.files) == ("db", (FileCopy(tmp_path / "db/conf", None, "/c"),))
