"""Several services: how they are described, in which order they start, and how tools name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend
from tests.image_lab import write_spec
from tvsnap.environments import environment, with_services
from tvsnap.images import Image, ImageSpecError
from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.spec import DockerfileBase, DockerImageBase, ImageBase, ImageSpec
from tvsnap.model.calls import ToolCall
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits
from tvsnap.model.limits import Limits
from tvsnap.model.services import Condition, HealthCheck, ImageService, Services, start_order

COMPOSE = """
volumes: {shared: {}, own: }
services:
  client:
    build: .
    mem_limit: 1g
    depends_on: [web]
    volumes: ["shared:/shared"]
  db:
    image: postgres:16
    environment: [POSTGRES_PASSWORD=x]
    mem_limit: 2g
    restart: always
    container_name: the-db
    networks: {default: {aliases: [database]}}
    expose: ["5432"]
    healthcheck: {test: pg_isready, interval: 1m30s, timeout: 500ms, retries: 7, start_period: 2s}
  web:
    build: {context: web}
    command: serve --port 80
    ports: ["8080:80", {target: 81}]
    depends_on: {db: {condition: service_healthy}}
    volumes: ["shared:/data", "own:/own"]
    healthcheck: {disable: true}
  debugger: {image: x, profiles: [debug]}
"""


def task(folder: Path, compose: str) -> ImageSpec:
    (folder / "web").mkdir(parents=True)
    for name in ("Dockerfile", "web/Dockerfile"):
        (folder / name).write_text("FROM a\n")
    (folder / "task.yaml").write_text("instruction: x\n")
    (folder / "docker-compose.yaml").write_text(compose)
    return load_source(folder)


def service(name: str, after: Mapping[str, Condition] | None = None) -> ImageService:
    return ImageService(name, ("true",), {}, after=after or {})


class TestCompose:
    """A task folder with several services."""

    def test_what_is_read(self, tmp_path: Path) -> None:
        spec = task(tmp_path / "task", COMPOSE)
        (db, of_db), (web, of_web) = spec.services
        assert isinstance(spec.base, DockerfileBase)
        assert (spec.main.name, spec.main.volumes) == ("client", {"shared": "/shared"})
        assert db.base == DockerImageBase("postgres:16")
        assert (db.env, db.is_service) == ({"POSTGRES_PASSWORD": "x"}, True)
        assert of_db.aliases == ("database", "the-db")
        assert of_db.health == HealthCheck(("/bin/sh", "-c", "pg_isready"), 90.0, 0.5, 7, 2.0)
        assert (of_db.command, of_db.ports) == (None, (5432,))
        assert of_web.command == ("serve", "--port", "80")
        assert (of_web.after, of_web.ports) == ({"db": "service_healthy"}, (80, 81))
        assert (of_web.health, of_web.healthless, of_web.volumes) == (None, True, {"shared": "/data", "own": "/own"})
        assert isinstance(web.base, DockerfileBase)
        assert web.base.path == tmp_path / "task/web/Dockerfile"
        assert spec.limits == ImageLimits(memory=3 << 30)
        assert [note for note in (*spec.notes, *db.notes) if "profile" in note or "restart" in note] == [
            "service debugger: has a profile, and is not started",
            "service db: restart always: not followed; a service that ends stays ended",
        ]
        assert not any("CMD" in note for note in web.notes)

    def test_a_profile_leaves_one_service(self, tmp_path: Path) -> None:
        spec = task(tmp_path / "task", "services: {client: {build: .}, x: {image: a, profiles: [p]}}")
        assert spec.services == ()

    def test_the_main_service_of_a_harbor_task_need_not_be_named(self, tmp_path: Path) -> None:
        (tmp_path / "environment").mkdir()
        (tmp_path / "task.toml").write_text("[environment]\nmemory_mb = 1024\n")
        (tmp_path / "environment/Dockerfile").write_text("FROM terminal\n")
        compose = "services: {db: {image: 'postgres:16', mem_limit: 1g}}"
        (tmp_path / "environment/docker-compose.yaml").write_text(compose)
        spec = load_source(tmp_path)
        assert (spec.main.name, [settings.name for _, settings in spec.services]) == ("main", ["db"])
        assert isinstance(spec.base, DockerfileBase)
        assert spec.limits == ImageLimits(memory=2 << 30)


class TestImageYaml:
    """The key `services`."""

    def test_what_a_service_is_made_of(self, tmp_path: Path) -> None:
        folder = write_spec(
            tmp_path / "shop",
            "image: terminal\nservices:\n  main: {volumes: ['v:/v']}\n  a: {image: terminal}\n  b: {image: redis:7}\n"
            "  c: {docker_image: redis, volumes: ['v:/v']}\n  d: {build: inner, environment: {A: b}}\n",
        )
        write_spec(folder / "inner", "image: terminal\npackages: [nginx]\n")
        spec = load_source(folder)
        bases = [its.base for its, _ in spec.services]
        assert bases == [
            ImageBase("terminal"),
            DockerImageBase("redis:7"),
            DockerImageBase("redis"),
            ImageBase("terminal"),
        ]
        assert spec.services[3][0].packages == ("nginx",)
        assert spec.services[3][0].env == {"A": "b"}
        assert spec.main.volumes == spec.services[2][1].volumes == {"v": "/v"}
        assert all(its.is_service for its, _ in spec.services)

    @pytest.mark.parametrize(
        ("services", "reason"),
        [
            ("[a]", "services: must be a mapping of names to services"),
            ("{main: {}}", "services: names no service beside the main one"),
            ("{main: {command: x}, a: {image: b}}", "main: command: image.yaml has keys of its own"),
            ("{a: {}}", "a: needs build, image or docker_image"),
            ("{a/b: {image: c}}", "cannot be the name of a service"),
            ("{a: {image: b, links: ['c:d']}}", "links: c:d: give c that name by an alias"),
            ("{a: {image: b, depends_on: {c: {}}}}", "a depends on c, which is no service; have: main, a"),
            ("{a: {image: b, depends_on: {main: {condition: x}}}}", "must be service_started, service_healthy or"),
            ("{a: {build: ..}}", "must lie|does not exist|outside"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, services: str, reason: str) -> None:
        folder = write_spec(tmp_path / "shop", f"image: terminal\nservices: {services}\n")
        with pytest.raises(ImageSpecError, match=reason):
            load_source(folder)


class TestServices:
    """The types."""

    def test_each_starts_after_those_that_it_waits_for(self) -> None:
        a = service("a", {"c": "service_healthy", "main": "service_started"})
        b, c = service("b"), service("c", {"b": "service_started"})
        assert [one.name for one in start_order([a, b, c])] == ["b", "c", "a"]

    def test_a_circle_is_refused(self) -> None:
        a, b = service("a", {"b": "service_started"}), service("b", {"a": "service_started"})
        with pytest.raises(ValueError, match="a, b wait for each other"):
            start_order([a, b])

    def test_there_and_back(self) -> None:
        full = replace(service("a", {"b": "service_healthy"}), health=HealthCheck(("x",)), ports=(1,))
        services = Services("client", (full, service("b")), (("/x", "/y"),))
        assert Services.from_json(services.to_json()) == services
        assert not Services()


class TestTools:
    """The tools of an image with several services."""

    def test_only_some_take_the_service_and_of_one_service_none(self, fake_terminal: Image) -> None:
        image = replace(fake_terminal, services=Services("main", (service("db"),)))
        several, one = with_services(environment("terminal"), image), environment("terminal")
        assert with_services(one, fake_terminal) is one
        takes = {name for name, tool in several.tools.items() if "service" in tool.parameters["properties"]}
        assert {"exec", "read_file", "write_file"} <= takes
        assert not takes & {"bash", "keys", "screen"}
        assert not any("service" in tool.parameters["properties"] for tool in one.tools.values())
        assert several.tools["exec"].parameters["properties"]["service"]["enum"] == ["main", "db"]
        several.tool(ToolCall("exec", {"command": "ls", "service": "db"}))
        with pytest.raises(UsageError, match="one of 'main', 'db', not 'dc'"):
            several.tool(ToolCall("exec", {"command": "ls", "service": "dc"}))
        with pytest.raises(UsageError, match='unknown argument "service"'):
            several.tool(ToolCall("bash", {"command": "ls", "service": "db"}))

    def test_a_call_goes_to_its_service(
        self, fake_terminal: Image, fake_backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        image = replace(fake_terminal, services=Services("main", (service("db"),)))
        several = with_services(environment("terminal"), image)
        sandbox = fake_backend.start(fake_terminal, Limits())
        asked: list[object] = []
        inner = sandbox.read_file

        def read_file(path: str, **more: object) -> bytes:
            asked.append(more)
            return inner(path)

        monkeypatch.setattr(sandbox, "read_file", read_file)
        sandbox.write_file("/x", b"y")
        for arguments in ({"path": "/x", "service": "db"}, {"path": "/x"}):
            assert several.execute(sandbox, ToolCall("read_file", arguments), 5.0, Limits()).output == "y"
        assert asked == [{"service": "db"}, {}]
