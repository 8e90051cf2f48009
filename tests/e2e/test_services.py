"""Images with several services: built, started, asked, snapshotted and forked together, on the local backend."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image_lab import Recorder, left_of_builds, write_spec
from tests.small_image import build_small_image
from tvsnap import Cache, Rollout
from tvsnap.images import Image, ImageBuildError, ImageSpecError, ImageStore
from tvsnap.images.descriptions.service_spec import ServiceSettings
from tvsnap.images.descriptions.spec import FileCopy, ImageBase, ImageSpec
from tvsnap.model.errors import InfrastructureError, UsageError

SERVER = """
import os, socket, sys
print("starting", flush=True)
file = ("/tmp/" if os.getuid() else "/var/run/") + sys.argv[1]
os.path.exists(file) and os.unlink(file)
unix = socket.socket(socket.AF_UNIX)
unix.bind(file)
unix.listen()
listener = socket.create_server(("0.0.0.0", int(sys.argv[2])))
count = 0
while True:
    connection, _ = listener.accept()
    count += connection.recv(9) == b"add"
    connection.sendall(b"%s %d" % (sys.argv[1].encode(), count))
    connection.close()
"""
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.sendall(sys.argv[3].encode())
print(connection.recv(99).decode())
"""
SHOP = """
image: with-python
files: [{content: "one\\n", dest: /shared/first}]
services:
  main:
    volumes: ["shared:/shared"]
  web:
    image: with-python
    command: python3 -S /server.py web 8000
    user: agent
    working_dir: /run
    depends_on:
      db: {condition: service_healthy}
      setup: {condition: service_completed_successfully}
    volumes: ["shared:/data"]
  setup:
    image: with-python
    command: sh -c 'cat /data/first > /data/second; cat /proc/sys/kernel/random/uuid > /data/drawn'
    volumes: ["shared:/data"]
  db:
    build: db
    command: [python3, -S, /server.py, db, "5432"]
    environment: {GREETING: hi}
    networks: {default: {aliases: [database]}}
    healthcheck: {test: "python3 -S /ask.py db 5432 look", interval: 1s, retries: 20}
"""
_LEFT_OUT = {
    "test",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "ensurepip",
    "unittest",
    "tkinter",
    "__pycache__",
}


@pytest.fixture(scope="module")
def home(terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the image `with-python`: bash, some programs, and most of Python, 25 MB."""
    home = tmp_path_factory.mktemp("services")
    small = build_small_image(terminal_image, home)
    root = home / "with-python" / "rootfs"
    shutil.copytree(small.rootfs, root, symlinks=True, ignore=shutil.ignore_patterns("dev"))
    taken = terminal_image.rootfs / "usr"
    shutil.copy(taken / "bin/python3.11", root / "usr/bin/python3")
    shutil.copytree(
        taken / "lib/python3.11", root / "usr/lib/python3.11", symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT)
    )
    for left in (root / "usr/lib/python3.11/lib-dynload").iterdir():
        left.unlink()
    for library in ("libm.so.6", "libz.so.1", "libexpat.so.1"):
        found = next((taken / "lib").glob(f"*-linux-gnu/{library}"))
        target = root / found.relative_to(terminal_image.rootfs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, target)
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n")
    write_spec(
        root.parent,
        "name: with-python\ndirectory: rootfs\nfiles:\n"
        "  - {source: server.py, dest: /server.py}\n  - {source: ask.py, dest: /ask.py}\n",
        server__py=SERVER,
        ask__py=ASK,
    )
    ImageStore(home).build(root.parent)
    shutil.rmtree(root.parent)
    return home


@pytest.fixture(scope="module")
def shop(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image `shop`, with four services."""
    folder = write_spec(tmp_path_factory.mktemp("folder") / "shop", SHOP)
    write_spec(folder / "db", "image: with-python\nfiles: [{content: of db, dest: /etc/mine}]\n")
    return ImageStore(home).build(folder)


@pytest.fixture
def cache(home: Path) -> Iterator[Cache]:
    # By default a busy machine may leave out states with live processes, which all are here.
    with Cache(home=home, policy="eager") as cache:
        yield cache


def ask(rollout: Rollout, name: str, port: int, what: str, **more: str) -> str:
    result = rollout.call("exec", {"command": f"python3 -S /ask.py {name} {port} {what}", **more}, timeout=30)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def output(rollout: Rollout, tool: str, **arguments: str) -> str:
    return rollout.call(tool, arguments, timeout=30).output


def test_services_reach_each_other_by_name(cache: Cache, shop: Image) -> None:
    """Each by its own address, from any service, by aliases as well."""
    with cache.rollout(image=shop.name) as rollout:
        assert ask(rollout, "db", 5432, "look") == "db 0"
        assert ask(rollout, "database", 5432, "add", service="web") == "db 1"
        assert ask(rollout, "web", 8000, "look", service="db") == "web 0"
        hosts = output(rollout, "read_file", path="/etc/hosts", service="web").splitlines()[3:]
        assert hosts == ["127.0.0.1\tmain", "127.0.0.2\tweb", "127.0.0.3\tsetup", "127.0.0.4\tdb database"]


def test_each_has_its_own_root_variables_user_and_directory(cache: Cache, shop: Image) -> None:
    with cache.rollout(image=shop.name) as rollout:
        told = output(rollout, "exec", command="cat /etc/mine; echo; echo $GREETING $USER; cd ..; pwd", service="db")
        assert told == "of db\nhi\n/\n"
        assert output(rollout, "exec", command="id -u; ls /tmp; pwd", service="web") == "1000\nweb\n/run\n"
        assert "No such file" in output(rollout, "read_file", path="/etc/mine")
        assert "No such file" in output(rollout, "read_file", path="/etc/mine", service="web")
        assert output(rollout, "exec", command="id -u", service="db", user="agent") == "1000\n"


def test_standard_error_of_a_service_is_kept_apart(cache: Cache, shop: Image) -> None:
    with cache.rollout(image=shop.name) as rollout:
        arguments = {"command": "cat /etc/mine; echo '$GREETING' $X >&2; exit 3", "service": "db", "env": {"X": "a b"}}
        told = rollout.call("exec", {**arguments, "separate": True}, timeout=30)
        assert (told.parts[0].data, told.stderr, told.exit_code) == ("of db", "$GREETING a b\n", 3)
        long = {"command": f"x={'x' * 150_000}; echo ${{#x}}; id -u >&2", "service": "web", "separate": True}
        told = rollout.call("exec", long, timeout=30)
        assert (told.parts[0].data, told.stderr) == ("150000\n", "1000\n")


def test_links_do_not_leave_a_service(cache: Cache, shop: Image) -> None:
    with cache.rollout(image=shop.name) as rollout:
        rollout.call(
            "exec", {"command": "ln -s /../../../etc /up; ln -s ../../../../etc/name /relative", "service": "db"}
        )
        rollout.call("write_file", {"path": "/up/name", "content": "inside", "service": "db"})
        assert output(rollout, "read_file", path="/relative", service="db") == "inside"
        assert "No such file" in output(rollout, "read_file", path="/etc/name")


def test_files_are_put_and_fetched_as_a_service_sees_them(cache: Cache, shop: Image) -> None:
    db, web = "/run/tvsnap-services/db", "/run/tvsnap-services/web"
    with cache.rollout(image=shop.name) as rollout:
        rollout.call("exec", {"command": "mkdir /kept; ln -s /kept /up; ln -s /etc/mine /kept/mine", "service": "db"})
        assert rollout.put(b"1", f"{db}/up/f", user="root").exit_code == 0
        assert output(rollout, "exec", command="cat /kept/f", service="db") == "1"
        assert rollout.get(f"{db}/up/f").read() == b"1"
        assert rollout.get(f"{db}/up/mine").read() == b"of db"
        assert rollout.get(f"{db}/up").kind == "directory"
        assert rollout.get(f"{db}/up/nothing").digest is None
        assert rollout.put(b"2", f"{web}/tmp/f", user="agent").exit_code == 0
        assert output(rollout, "exec", command="ls -ln /tmp/f", service="web").split()[2] == "1000"
        sandbox = rollout.sandbox()
        assert {entry.name for entry in sandbox.list_folder(f"{db}/up").entries} == {"f", "mine"}
        assert "kept" not in {entry.name for entry in sandbox.list_folder("/").entries}


def test_shared_directories_hold_what_the_first_brought(cache: Cache, shop: Image) -> None:
    """The one-shot service has read and written there before `web` was started."""
    with cache.rollout(image=shop.name) as rollout:
        assert output(rollout, "bash", command="cat /shared/first /shared/second") == "one\none\n"
        rollout.call("write_file", {"path": "/shared/third", "content": "3"})
        assert output(rollout, "read_file", path="/data/third", service="web") == "3"


def test_forks_keep_all_of_them(cache: Cache, shop: Image) -> None:
    """What servers remember, their files and their sockets, Unix ones too; each fork goes its own way."""
    unix = "python3 -S -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"/var/run/db\"); print(1)'"
    with cache.rollout(image=shop.name) as first:
        ask(first, "db", 5432, "add")
        first.call("write_file", {"path": "/tmp/kept", "content": "kept", "service": "web"})
        state = first.state
        ask(first, "db", 5432, "add")
        sandboxes = cache.fork(state, 2)
    try:
        for sandbox in sandboxes:
            asked = sandbox.exec("python3 -S /ask.py db 5432 add", timeout=20, service="web")
            assert asked.output == b"db 2\n"
            assert sandbox.read_file("/tmp/kept", service="web") == b"kept"
            assert sandbox.exec(unix, timeout=20, service="db").output == b"1\n"
            assert sandbox.exec("ls /var/run/db", timeout=20).exit_code != 0
    finally:
        for sandbox in sandboxes:
            sandbox.close()


ENTRY = """#!/bin/sh
echo "as $(id -u) in $PWD with $WORD" >&2
python3 -S /server.py entry 7000 &
until python3 -S /ask.py 127.0.0.1 7000 look 2> /dev/null; do :; done
exec "$@"
"""


def program_of(folder: Path, *entrypoint: str, command: tuple[str, ...] = ("sh", "-c", "sleep infinity")) -> ImageSpec:
    """What a task's folder says whose container has an entrypoint."""
    return ImageSpec(
        folder,
        folder.name,
        "terminal",
        ImageBase("with-python"),
        files=(FileCopy(None, ENTRY, "/entry.sh", 0o755),),
        env={"WORD": "a word"},
        workdir="/run",
        runs=ServiceSettings("main", entrypoint=entrypoint, command=command),
        runs_as="agent",
    )


def test_the_main_services_program_runs_before_the_first_call(home: Path, cache: Cache, tmp_path: Path) -> None:
    image = ImageStore(home).build(program_of(tmp_path / "entered", "/entry.sh"))
    calls = [("exec", {"command": f"python3 -S /ask.py 127.0.0.1 7000 {what}"}) for what in ("add", "look", "add")]

    def told() -> list[tuple[str, str]]:
        with cache.rollout(image=image.name) as rollout:
            assert "service" not in rollout.tools["exec"].parameters["properties"]
            results = [rollout.call(name, arguments, timeout=30) for name, arguments in calls]
            assert (
                rollout.get("/run/tvsnap-services/main.log").read()
                == b"as 1000 in /run with a word\nstarting\nentry 0\n"
            )
        return [(each.output.strip(), each.source) for each in results]

    first, again = told(), told()
    assert [output for output, _ in first] == [output for output, _ in again] == ["entry 1", "entry 1", "entry 2"]
    assert "executed" not in {source for _, source in again}
    with cache.rollout(image=image.name) as rollout:
        rollout.call("exec", calls[0][1])
        state = rollout.state
        with cache.rollout(image=image.name) as other:
            assert other.call("exec", calls[1][1]).output == "entry 0\n"
    (fork,) = cache.fork(state, 1)
    with contextlib.closing(fork):
        assert fork.exec("python3 -S /ask.py 127.0.0.1 7000 look", timeout=20).output == b"entry 1\n"


@pytest.mark.parametrize("entrypoint", [(), ("/usr/bin/tini", "--")])
def test_a_program_that_only_waits_is_not_run(home: Path, tmp_path: Path, entrypoint: tuple[str, ...]) -> None:
    image = ImageStore(home).build(program_of(tmp_path / "waits", *entrypoint))
    assert not image.services


def test_a_main_program_that_fails_is_an_error(home: Path, cache: Cache, tmp_path: Path) -> None:
    image = ImageStore(home).build(
        program_of(tmp_path / "failing", "/entry.sh", command=("sh", "-c", "echo no; exit 3"))
    )
    with (
        cache.rollout(image=image.name) as rollout,
        pytest.raises(
            InfrastructureError,
            match=r"(?s)main of failing ended with exit status 3 .*entrypoint: .*; it printed:.*no$",
        ),
    ):
        rollout.call("exec", {"command": "true"})


def test_the_main_services_program_on_docker(home: Path, docker_engine: str, tmp_path: Path) -> None:
    image = ImageStore(home).build(program_of(tmp_path / "entered", "/entry.sh"))
    with Cache(home=home, backend="docker") as cache, cache.rollout(image=image.name) as rollout:
        assert ask(rollout, "127.0.0.1", 7000, "add") == "entry 1"


def test_an_archive_has_the_files_of_all(cache: Cache, shop: Image) -> None:
    """But nothing of what is mounted in their roots for their processes."""
    with (
        cache.rollout(image=shop.name) as rollout,
        rollout.sandbox().archive() as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        names = {member.name for member in tar}
    assert {"./shared/first", "./run/tvsnap-services/db/etc/mine", "./run/tvsnap-services/db/proc"} <= names
    assert not {name for name in names if "/db/proc/" in name or "/db/dev/" in name}


def test_cached_equals_fresh(cache: Cache, shop: Image) -> None:
    calls = [("exec", {"command": f"python3 -S /ask.py db 5432 {what}"}) for what in ("add", "look", "add")]
    calls += [("write_file", {"path": "/x", "content": "y", "service": "db"})]
    calls += [("exec", {"command": "cat /x; ls /run; python3 -S /ask.py web 8000 add", "service": "db"})]

    def told(salt: str) -> list[tuple[str, int | None, str]]:
        with cache.rollout(image=shop.name, salt=salt) as rollout:
            results = [rollout.call(name, arguments, timeout=30) for name, arguments in calls]
        return [(each.output, each.exit_code, each.source) for each in results]

    first, again, fresh = told("a"), told("a"), told("b")
    assert [each[:2] for each in first] == [each[:2] for each in again] == [each[:2] for each in fresh]
    assert "executed" not in {each[2] for each in again}, cache.stats().reasons
    assert {each[2] for each in fresh} == {"executed"}


def test_of_several_rollouts_all_begin_at_one_start(cache: Cache, shop: Image) -> None:
    told = set()
    for number in range(3):
        with cache.rollout(image=shop.name, salt="once") as rollout:
            told.add(output(rollout, "exec", command=f": {number}; cat /proc/sys/kernel/random/boot_id /shared/drawn"))
    assert len(told) == 1


def failing(cache: Cache, folder: Path, services: str) -> str:
    """Returns the error of a rollout's first call in an image with these services."""
    image = cache.images.build(write_spec(folder, f"image: with-python\nservices:\n{services}"))
    with cache.rollout(image=image.name) as rollout, pytest.raises(InfrastructureError) as caught:
        rollout.call("bash", {"command": "true"})
    return str(caught.value)


def test_a_service_that_is_not_healthy_is_named_with_its_log(cache: Cache, tmp_path: Path) -> None:
    reason = failing(
        cache,
        tmp_path / "ill",
        "  db:\n    image: with-python\n    command: sh -c 'echo no disk; sleep 100'\n"
        "    healthcheck: {test: 'echo not ready; exit 3', interval: 100ms, retries: 2}\n",
    )
    assert "the service db of ill is not healthy within" in reason
    assert "said: not ready" in reason
    assert reason.endswith("it printed:\nno disk")


def test_a_service_that_ended_is_named_with_its_log(cache: Cache, tmp_path: Path) -> None:
    reason = failing(
        cache,
        tmp_path / "gone",
        "  db:\n    image: with-python\n    command: sh -c 'echo no disk; exit 7'\n"
        "    healthcheck: {test: exit 1, interval: 1s, retries: 20}\n",
    )
    assert "the service db of gone ended with exit status 7 before it was healthy" in reason
    assert reason.endswith("it printed:\nno disk")


def test_a_port_that_another_has_is_told(cache: Cache, tmp_path: Path) -> None:
    one = (
        "    image: with-python\n    expose: [80]\n    command: python3 -S /server.py {0} 80\n"
        "    healthcheck: {{test: python3 -S /ask.py localhost 80 look, interval: 1s, retries: 20}}\n"
    )
    folder = tmp_path / "both"
    other = one.replace("test: python3 -S /ask.py localhost 80 look", "test: exit 1")
    services = (
        f"  a:\n{one.format('a')}  b:\n{other.format('b')}    depends_on: {{a: {{condition: service_healthy}}}}\n"
    )
    write_spec(folder, f"image: with-python\nservices:\n{services}")
    progress = Recorder()
    cache.images.build(folder, progress=progress)
    assert any(note.startswith("services a, b: each says that it listens at port 80") for note in progress.notes)
    reason = failing(cache, folder, services)
    assert (
        "the service b of both ended with exit status 1 before it was healthy (all services share one network" in reason
    )
    assert "Address already in use" in reason


def test_an_unknown_service_is_told(cache: Cache, shop: Image) -> None:
    with cache.rollout(image=shop.name) as rollout:
        with pytest.raises(UsageError, match="must be one of 'main', 'setup', 'db', 'web'"):
            rollout.call("exec", {"command": "ls", "service": "dc"})
        with pytest.raises(UsageError, match='no service "dc"; have: main, setup, db, web'):
            rollout.sandbox().exec("ls", timeout=5, service="dc")


def test_no_image_starts_from_one_with_services(cache: Cache, shop: Image, tmp_path: Path) -> None:
    with pytest.raises(ImageSpecError, match="cannot start from shop, which has several services"):
        cache.images.build(write_spec(tmp_path / "above", f"image: {shop.name}\n"))


def test_a_service_without_a_command_is_told(cache: Cache, tmp_path: Path) -> None:
    folder = write_spec(tmp_path / "idle", "image: with-python\nservices: {a: {image: with-python}}\n")
    with pytest.raises(ImageBuildError, match="nothing says what the service a runs; give it a command"):
        cache.images.build(folder)
    assert left_of_builds(cache.home) == [name for name in left_of_builds(cache.home) if not name.startswith(".")]
