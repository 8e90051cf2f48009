"""Images from Dockerfiles and Docker images: real builds by a real engine, and nothing of them left in it."""

from __future__ import annotations

import functools
import http.server
import os
import secrets
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority
from tests.image_lab import Recorder, add_program
from tvsnap.images import UID_BASE, ImageBuildError, ImageStore
from tvsnap.images.build import buildah_tool
from tvsnap.images.build.buildah_tool import BuildahTool, steps_complaint
from tvsnap.images.build.containers import LABEL_PURPOSE
from tvsnap.model.errors import MachineLacks, UsageError
from tvsnap.model.images import ImageLimits, Timeouts
from tvsnap.plugins.docker.builds import BUILD, EngineTool
from tvsnap.plugins.docker.engine import LABEL_HOME, Engine, home_tag
from tvsnap.sandboxes.kernel.paths import topmost

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root's rights"),
    pytest.mark.timeout(600),
]

PROGRAMS = ("sh", "cat", "chmod", "chown", "echo", "id", "ln", "ls", "mkdir", "mkfifo", "rmdir", "sleep", "true")
NAME = f"tvsnap-test/base-{secrets.token_hex(4)}"
BASE = f"{NAME}:1"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root filesystem with a shell and a few programs of this machine."""
    root = tmp_path_factory.mktemp("base") / "rootfs"
    for name in PROGRAMS:
        program = shutil.which(name)
        assert program is not None
        add_program(root, program, f"bin/{name}")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1001::/home/agent:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nagents:x:1001:\n")
    return root


@pytest.fixture(scope="module")
def base(docker_engine: str, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A base image in the engine that nobody else has; yields its id."""
    tool = EngineTool(tmp_path_factory.mktemp("base-home"))
    tool.load(tree, BASE, lambda line: None)
    id = tool.image_id(BASE)
    assert id is not None
    yield id
    remove_children(tool.engine.api, id)
    tool.engine.api.remove_image(BASE, force=True)
    tool.close()


@pytest.fixture
def engine(docker_engine: str) -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "home")


def children(api: Any, image: str) -> list[str]:
    """The ids of all images that were built on an image, deepest first."""
    found: list[str] = []
    for child in api.images(all=True):
        if child["ParentId"] == image:
            found += [*children(api, child["Id"]), child["Id"]]
    return found


def remove_children(api: Any, image: str) -> None:
    for child in children(api, image):
        api.remove_image(child, force=True, noprune=True)


def leftovers(engine: Engine, home: Path, base: str) -> list[str]:
    """What builds on a data directory left in the engine."""
    filters = {"label": [f"{LABEL_PURPOSE}={BUILD}", f"{LABEL_HOME}={home_tag(home)}"]}
    containers = engine.api.containers(all=True, filters=filters)
    return [*(container["Id"] for container in containers), *children(engine.api, base)]


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_dockerfile(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    """Stages, arguments, ignored files, owners, modes, links, the configuration; found again without a build."""
    folder = write(
        tmp_path / "My Task",
        Dockerfile=f"""
            ARG BASE=nothing
            FROM {BASE} AS first
            ARG WORD=unsaid
            RUN echo $WORD > /word
            FROM $BASE
            COPY --from=first /word /app/word
            COPY . /app/
            RUN chown 1000:1001 /app/f && ln /app/f /app/g && ln -s f /app/h && chmod 4755 /bin/ls && mkfifo /app/pipe
            ENV A="b c" PATH=/opt/bin:/bin
            VOLUME /data
            EXPOSE 80
            ENTRYPOINT ["/entry.sh"]
            USER agent
            WORKDIR /app/work
            """,
        f="content",
        left="out",
        **{
            ".dockerignore": "left\n",
            "image.yaml": f"name: docker\ndockerfile: {{path: Dockerfile, args: {{BASE: '{BASE}', WORD: said}}}}\n"
            "files: [{content: hi, dest: /app/more}]\nrun: ['cat ../word ../more > /app/both']\n"
            "limits: {memory: 64M}\n",
        },
    )
    progress = Recorder()
    image = store.build(folder, progress=progress)

    assert (image.env["A"], image.env["PATH"]) == ("b c", "/opt/bin:/bin")
    assert (image.user, image.workdir, image.name) == ("agent", "/app/work", "docker")
    assert image.limits == ImageLimits(memory=64 << 20)
    app = image.rootfs / "app"
    assert (app / "word").read_text() == "said\n"
    assert (app / "both").read_text() == "said\nhi"
    assert not (app / "left").exists()
    assert (app / "f").read_text() == "content"
    assert ((app / "f").stat().st_uid, (app / "f").stat().st_gid) == (UID_BASE + 1000, UID_BASE + 1001)
    assert (app / "f").stat().st_ino == (app / "g").stat().st_ino
    assert os.readlink(app / "h") == "f"
    assert (app / "pipe").is_fifo()
    assert (image.rootfs / "bin/ls").stat().st_mode & 0o7777 == 0o4755
    assert (image.rootfs / "data").is_dir()
    assert not (image.rootfs / ".dockerenv").exists()
    assert [note.split()[0] for note in progress.notes] == ["ENTRYPOINT", "VOLUME", "EXPOSE"]
    assert store.manifest(image).notes == tuple(progress.notes)
    assert leftovers(engine, tmp_path / "home", base) == []

    again = Recorder()
    assert store.build(folder, progress=again) == image
    assert again.steps == []
    assert again.notes == progress.notes
    (folder / "left").write_text("still out")
    assert store.build(folder, progress=again) == image
    assert again.steps == []


def test_a_changed_base_or_context_is_seen(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    folder = write(tmp_path / "seen", Dockerfile=f"FROM {BASE}\nCOPY f /f\n", f="1")
    first = store.build(folder)
    (folder / "f").write_text("2")
    second = store.build(folder)
    assert (second.rootfs / "f").read_text() == "2"
    other = f"{NAME}:2"
    engine.api.tag(base, other)
    try:
        write(folder, Dockerfile=f"FROM {other}\nCOPY f /f\n", f="1")
        assert store.build(folder).digest == first.digest
    finally:
        engine.api.remove_image(other)


def test_a_step_that_fails(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    folder = write(tmp_path / "fails", Dockerfile=f"FROM {BASE}\nRUN echo made > /made\nRUN echo oh no >&2; false\n")
    with pytest.raises(ImageBuildError, match=r"build of .*Dockerfile failed at Step 3/\d+ : RUN .* code: 1") as caught:
        store.build(folder)
    assert "oh no" in caught.value.output
    assert leftovers(engine, tmp_path / "home", base) == []
    assert store.list() == []


def test_an_interrupt_leaves_nothing(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    folder = write(tmp_path / "slow", Dockerfile=f"FROM {BASE}\nRUN echo made > /made\nRUN echo now; sleep 1000\n")
    started = time.monotonic()
    with subprocess.Popen(build_command(folder, tmp_path / "home"), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() == "now":
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()
    assert process.returncode != 0
    assert time.monotonic() - started < 120
    assert leftovers(engine, tmp_path / "home", base) == []


def build_command(folder: Path, home: Path) -> list[str]:
    program = Path(sys.executable).with_name("tvsnap")
    return [str(program), "image", "build", str(folder), "--home", str(home), "--verbose"]


def test_what_a_dead_build_left_goes_with_the_next(
    tmp_path: Path, store: ImageStore, engine: Engine, base: str
) -> None:
    home = tmp_path / "home"
    dead = EngineTool(home)
    left = engine.api.create_container(BASE, command=["true"], labels=dead.labels(BUILD))["Id"]
    dead.close()
    assert leftovers(engine, home, base) == [left]
    store.build(write(tmp_path / "next", Dockerfile=f"FROM {BASE}\n"))
    assert leftovers(engine, home, base) == []


def test_layers_are_kept_if_asked_for(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    folder = write(tmp_path / "kept", Dockerfile=f"FROM {BASE}\nRUN echo made > /made\n")
    store.build(folder, keep_layers=True)
    assert children(engine.api, base)
    progress = Recorder()
    store.build(folder, keep_layers=True, force=True, progress=progress)
    assert any("Using cache" in line for line in progress.lines)
    remove_children(engine.api, base)


def test_a_docker_image(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    folder = write(tmp_path / "ready", **{"image.yaml": f"docker_image: '{BASE}'\nrun: ['echo done > /done']\n"})
    image = store.build(folder)
    assert (image.rootfs / "done").read_text() == "done\n"
    assert leftovers(engine, tmp_path / "home", base) == []


def test_an_archive_of_docker_save(tmp_path: Path, store: ImageStore, engine: Engine, base: str) -> None:
    """With layers that delete what those below had."""
    layered = f"{NAME}:layered"
    lines = f"FROM {BASE}\nRUN echo 1 > /a && mkdir /b\nRUN chmod 600 /a && rmdir /b\nUSER agent\n"
    folder = write(tmp_path / "saved", Dockerfile=lines)
    tool = EngineTool(tmp_path / "home")
    try:
        for _ in engine.api.build(path=str(folder), tag=layered, rm=True, network_mode="host"):
            pass
        with (folder / "archive.tar").open("wb") as archive:
            for chunk in engine.api.get_image(layered):
                archive.write(chunk)
    finally:
        engine.api.remove_image(layered, force=True)
        tool.close()
    write(folder, **{"image.yaml": f"oci: {{path: archive.tar, tag: '{layered}'}}\n"})
    image = store.build(folder)
    assert image.user == "agent"
    assert (image.rootfs / "a").read_text() == "1\n"
    assert (image.rootfs / "a").stat().st_mode & 0o777 == 0o600
    assert not (image.rootfs / "b").exists()
    write(folder, **{"image.yaml": "oci: {path: archive.tar, tag: 'other:1'}\n"})
    with pytest.raises(ImageBuildError, match=rf'has no image "other:1"; it has: {layered}'):
        store.build(folder)


def test_an_image_that_is_not_there(tmp_path: Path, store: ImageStore, docker_engine: str) -> None:
    folder = write(tmp_path / "gone", Dockerfile="FROM tvsnap-test/nowhere:1\n")
    with pytest.raises(
        ImageBuildError, match=r"nowhere:1, which it starts from, is not in the Docker .* tvsnap image base"
    ):
        store.build(folder)
    write(folder, **{"image.yaml": "docker_image: {image: 'tvsnap-test/nowhere:1', pull: never}\n"})
    with pytest.raises(ImageBuildError, match=r"could not be fetched \(pull: never\)"):
        store.build(folder)


def test_what_only_buildkit_can(tmp_path: Path, store: ImageStore, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "kit", Dockerfile=f"FROM {BASE}\nRUN --mount=type=cache,target=/c true\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineLacks, match=r"the Dockerfile needs BuildKit \(line 2: RUN --mount\) or buildah"):
        store.build(folder)


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is missing: apt-get install buildah")
@pytest.mark.parametrize("tool", ["engine", "buildah"])
def test_buildah_knows_the_newest_syntax(
    tmp_path: Path,
    store: ImageStore,
    engine: Engine,
    tree: Path,
    base: str,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    """Where the docker command has no buildx, what an engine builds on and what it builds stay in the engine."""
    reference = BASE
    monkeypatch.setattr("tvsnap.plugins.docker.builds._has_buildkit", lambda: False)
    if tool == "buildah":
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
        reference = f"docker.io/tvsnap-test/{secrets.token_hex(4)}:1"
        BuildahTool().load(tree, reference, lambda line: None)
    folder = write(
        tmp_path / "kit",
        Dockerfile=f"""# syntax=docker/dockerfile:1
FROM {reference}
ENV WORD=said
RUN --mount=type=cache,target=/c <<EOF
echo "$WORD"   'twice' > /first
echo 'and   more' >> /first
EOF
RUN cat <<END > /second
$WORD
END
RUN --mount=type=bind,source=f,target=/bound cat /bound > /third
COPY --link --chmod=700 f <<'FILE' /dir/
$WORD stays
FILE
RUN echo "\x1b[31mred\x1b[0m"
""",
        f="x",
    )
    try:
        progress = Recorder()
        image = store.build(folder, progress=progress)
        assert (image.rootfs / "first").read_text() == "said twice\nand   more\n"
        assert (image.rootfs / "second").read_text() == "said\n"
        assert (image.rootfs / "third").read_text() == "x"
        assert (image.rootfs / "dir/FILE").read_text() == "$WORD stays\n"
        assert (image.rootfs / "dir/f").stat().st_mode & 0o777 == 0o700
        assert "red" in progress.lines
        assert leftovers(engine, tmp_path / "home", base) == []
    finally:
        if tool == "buildah":
            subprocess.run(["buildah", "rmi", reference], check=True, capture_output=True)


@pytest.fixture
def trusted_only_with_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server whose authority only those know that are lent its certificate, as builds are."""
    authority = Authority(tmp_path / "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("server", "subjectAltName=IP:127.0.0.1"))
    (tmp_path / "served").mkdir()
    (tmp_path / "served/page").write_text("fetched\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("TVSNAP_BUILD_CERTIFICATES", str(authority.file))
        yield f"https://127.0.0.1:{server.server_port}/page"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: apt-get install curl")
@pytest.mark.parametrize("tool", ["engine", "engine for buildah", "buildah"])
def test_steps_trust_certificates_that_are_lent(
    tmp_path: Path,
    store: ImageStore,
    engine: Engine,
    tree: Path,
    base: str,
    trusted_only_with_certificates: str,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    if tool != "engine" and shutil.which("buildah") is None:
        pytest.skip("buildah is missing: apt-get install buildah")
    monkeypatch.setattr("tvsnap.plugins.docker.builds._has_buildkit", lambda: False)
    reference = BASE
    if tool == "buildah":
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
        reference = f"docker.io/tvsnap-test/{secrets.token_hex(4)}:1"
        BuildahTool().load(tree, reference, lambda line: None)
    program = tmp_path / "task/curl"
    add_program(program, shutil.which("curl") or "", "bin/curl")
    second = "RUN <<END\ncurl -sS $PAGE -o /second\nEND" if tool == "engine for buildah" else ""
    folder = write(
        tmp_path / "task",
        Dockerfile=f"""# what comes first
ARG WORD=unused
FROM {reference} AS first
ARG PAGE={trusted_only_with_certificates}
COPY curl /
RUN curl -sS $PAGE \\
    -o /word && echo $SSL_CERT_FILE > /named
{second}
FROM {reference}
COPY --from=first /word /named /
COPY curl /
""",
    )
    description = f"""
        dockerfile: {{path: Dockerfile, context: .}}
        run: ["curl -sS {trusted_only_with_certificates} -o /by-a-step"]
        """
    (folder / "image.yaml").write_text(description)
    try:
        image = store.build(folder)
        for name in ("word", "by-a-step"):
            assert (image.rootfs / name).read_text() == "fetched\n"
        assert (image.rootfs / "named").read_text() == "/etc/tvsnap-build-certificates.pem\n"
        assert not (image.rootfs / "etc/tvsnap-build-certificates.pem").exists()
        assert not [name for name in image.env if "CERT" in name or "CA_" in name]
        if tool != "buildah":
            assert leftovers(engine, tmp_path / "home", base) == []
            assert engine.api.images(name="tvsnap-build") == []
        monkeypatch.delenv("TVSNAP_BUILD_CERTIFICATES")
        with pytest.raises(ImageBuildError, match="failed"):
            store.build(folder, force=True)
        monkeypatch.setenv("TVSNAP_BUILD_CERTIFICATES", "/none.pem")
        with pytest.raises(UsageError, match=r"TVSNAP_BUILD_CERTIFICATES: /none.pem cannot be read"):
            store.build(folder, force=True)
    finally:
        if tool == "buildah":
            subprocess.run(["buildah", "rmi", reference], check=True, capture_output=True)


def test_no_engine_and_no_buildah(tmp_path: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "none", Dockerfile="FROM base\n")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineLacks, match=r"need a Docker Engine or buildah: no Docker Engine answers"):
        store.build(folder)


def test_a_dockerfile_in_a_compose_file(tmp_path: Path, store: ImageStore, base: str) -> None:
    folder = write(
        tmp_path / "inline",
        note="a note\n",
        **{
            "task.yaml": "instruction: x\n",
            "docker-compose.yaml": "services:\n  client:\n    build:\n      args: {WHO: agent}\n"
            f"      dockerfile_inline: |\n        FROM {BASE}\n        ARG WHO=nobody\n"
            '        RUN echo "hello $$WHO" > /greeting\n        COPY note /srv/note\n'
            "    secrets: [word, {source: word, target: mine, mode: 0400, uid: '1000'}]\n"
            "secrets: {word: {environment: WORD}}\n",
            ".env": "WORD=said\n",
        },
    )
    image = store.build(folder)
    for name, mode, owner in (("word", 0o444, 0), ("mine", 0o400, 1000)):
        about = (image.rootfs / "run/secrets" / name).stat()
        assert (stat.S_IMODE(about.st_mode), about.st_uid - UID_BASE, about.st_gid - UID_BASE) == (mode, owner, 0)
    assert (image.rootfs / "greeting").read_text() == "hello agent\n"
    assert (image.rootfs / "srv/note").read_text() == "a note\n"


def test_a_task_of_terminal_bench(tmp_path: Path, store: ImageStore, base: str) -> None:
    folder = write(
        tmp_path / "a-task",
        Dockerfile=f"FROM {BASE}\nWORKDIR /app\nCOPY data.txt .\n",
        **{
            "data.txt": "data",
            "task.yaml": "instruction: x\nmax_agent_timeout_sec: 60\n",
            "docker-compose.yaml": "services:\n  client:\n    build: {dockerfile: Dockerfile}\n"
            "    command: sleep infinity\n"
            "    environment: ['TEST_DIR=${T_BENCH_TEST_DIR}']\n    mem_limit: 128m\n    ports: ['80:80']\n"
            "    volumes: ['${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}', './more:/app/more']\n",
            "more/inner": "m",
        },
    )
    progress = Recorder()
    image = store.build(folder, progress=progress)
    assert (image.name, image.workdir, image.env["TEST_DIR"]) == ("a-task", "/app", "/tests")
    assert (image.limits, image.timeouts) == (ImageLimits(memory=128 << 20), Timeouts(agent=60.0))
    assert (image.rootfs / "app/data.txt").read_text() == "data"
    assert (image.rootfs / "app/more/inner").read_text() == "m"
    assert (image.rootfs / "logs").is_dir()
    assert [note.partition(":")[0] for note in progress.notes] == ["ports", "volume ./more"]


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is missing: apt-get install buildah")
@pytest.mark.parametrize(
    ("runtime", "others"),
    [
        ("", ("runc", "crun")),
        ("echo cgroups in hybrid mode not supported >&2; exit 1", ("runc", "crun")),
        ("exit 1", ()),
    ],
    ids=["usual", "broken", "none"],
)
def test_buildah_where_no_engine_answers(
    tmp_path: Path,
    store: ImageStore,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    runtime: str,
    others: tuple[str, ...],
) -> None:
    """Whatever runtime it would choose: one that starts nothing here gives way to one that does, or to a chroot."""
    monkeypatch.setattr(buildah_tool, "RUNTIMES", others)
    if runtime:
        (tmp_path / "crun").write_text(f"#!/bin/sh\n{runtime}\n")
        (tmp_path / "crun").chmod(0o755)
        monkeypatch.setenv("BUILDAH_RUNTIME", str(tmp_path / "crun"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    reference = f"docker.io/tvsnap-test/{secrets.token_hex(4)}:1"
    BuildahTool().load(tree, reference, lambda line: None)
    try:
        lines = f"FROM {reference}\nCOPY --chmod=755 f /f\nRUN --mount=type=cache,target=/c chown 1000 /f\nUSER agent\n"
        image = store.build(write(tmp_path / "built", Dockerfile=lines + 'CMD ["/f", "now"]\n', f="x"))
        assert image.user == "agent"
        assert (image.rootfs / "f").stat().st_uid == UID_BASE + 1000
        assert (image.rootfs / "f").stat().st_mode & 0o777 == 0o755
        assert store.manifest(image).notes[0].startswith('CMD ["/f", "now"]')
        listed = subprocess.run(["buildah", "images", "-aq"], capture_output=True, text=True, check=True).stdout
        containers = subprocess.run(["buildah", "containers", "-q"], capture_output=True, text=True, check=True).stdout
        id = BuildahTool().image_id(reference)
        assert id is not None
        assert any(id.startswith(short) for short in listed.split())
        assert containers == ""
    finally:
        subprocess.run(["buildah", "rmi", reference], check=True, capture_output=True)


@pytest.mark.parametrize("tool", ["engine", "buildah"])
def test_a_dockerfile_that_adds_nothing_leaves_its_base(
    tmp_path: Path, store: ImageStore, tree: Path, docker_engine: str, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """What such a build comes to may be the base itself, which is not ours to remove."""
    if tool == "buildah":
        if shutil.which("buildah") is None:
            pytest.skip("buildah is missing: apt-get install buildah")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    reference = f"docker.io/tvsnap-test/{secrets.token_hex(4)}:1"
    keeper = BuildahTool() if tool == "buildah" else EngineTool(tmp_path / "home")
    keeper.load(tree, reference, lambda line: None)
    try:
        id = keeper.image_id(reference)
        for layers in (False, True):
            folder = write(tmp_path / f"plain-{layers}", Dockerfile=f"FROM {reference}\n")
            image = store.build(folder, keep_layers=layers)
            assert topmost(image.layers, "/bin/cat") is not None
            assert keeper.image_id(reference) == id
    finally:
        if isinstance(keeper, BuildahTool):
            subprocess.run(["buildah", "rmi", reference], check=True, capture_output=True)
        else:
            keeper.engine.api.remove_image(reference, force=True)
        keeper.close()


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is missing: apt-get install buildah")
def test_whether_buildah_runs_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert steps_complaint() == ""
    monkeypatch.setattr(buildah_tool, "INIT", Path("/etc/hostname"))  # which is no program
    assert "failed with exit status" in steps_complaint()
    assert list(tmp_path.iterdir()) == []


def test_what_the_containers_of_a_task_run(tmp_path: Path, store: ImageStore, base: str) -> None:
    dockerfile = f"FROM {BASE}\nRUN echo 'exec \"$@\"' > /entry.sh\n"
    folder = write(
        tmp_path / "task",
        **{
            "task.toml": '[agent]\nuser = "agent"\n',
            "environment/Dockerfile": f'{dockerfile}ENTRYPOINT ["sh", "/entry.sh"]\nCMD ["none"]\n'
            'HEALTHCHECK CMD ["true"]\nENV A=1\nWORKDIR /app\nUSER 1000\n',
            "environment/db/Dockerfile": f'FROM {BASE}\nENTRYPOINT ["sh", "-c"]\n',
            "environment/docker-compose.yaml": "services:\n  db: {build: db, command: [cat /etc/passwd]}\n"
            "  main: {depends_on: [db]}\n",
        },
    )
    image = store.build(folder)
    program = image.services.program
    assert program is not None
    assert program.command == ("sh", "/entry.sh", "sh", "-c", "sleep infinity")
    assert (program.user, program.workdir, program.env["A"]) == ("1000", "/app", "1")
    assert program.health is not None
    assert image.user == "agent"
    assert [one.command for one in image.services.running] == [("sh", "-c", "cat /etc/passwd"), program.command]
    assert store.manifest(image).notes == ()
    said = "services: {main: {entrypoint: []}}\n"
    write(folder, **{"environment/docker-compose.yaml": said})
    alone = store.build(folder)
    assert not alone.services
    assert store.manifest(alone).notes == ("HEALTHCHECK: not run",)


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is missing: apt-get install buildah")
def test_a_task_whose_image_cannot_be_had(
    tmp_path: Path, store: ImageStore, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    reference = f"docker.io/tvsnap-test/{secrets.token_hex(4)}:1"
    BuildahTool().load(tree, reference, lambda line: None, "a few programs")
    folder = write(
        tmp_path / "task",
        **{
            "task.toml": '[environment]\ndocker_image = "localhost:1/nobody/task:1"\n[verifier.env]\nKEY = "${KEY}"\n',
            "environment/Dockerfile": f"FROM {reference}\nWORKDIR /app\nCOPY data .\n",
            "environment/data": "d",
        },
    )
    try:
        with pytest.raises(ImageBuildError, match=r"own Dockerfile: tvsnap image build \S+ --from-dockerfile, b"):
            store.build(folder)
        image = store.build(folder, from_dockerfile=True)
        assert (image.rootfs / "app/data").read_text() == "d"
        assert store.manifest(image).notes == (f"{reference}: not the public image but a few programs",)
        assert store.get("task").task.verifier.env == {"KEY": "${KEY}"}
    finally:
        subprocess.run(["buildah", "rmi", reference], check=True, capture_output=True)


def test_a_base_image_without_a_registry(tmp_path: Path, packages_kept: Path, engine: Engine) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "cache").symlink_to(packages_kept)
    store = ImageStore(home)
    reference = f"tvsnap-test/{secrets.token_hex(4)}:bookworm-slim"
    try:
        store.make_base(reference, "bookworm", ["bc"], into="engine")
        with pytest.raises(UsageError, match=r"has an image .* already; --force replaces it"):
            store.make_base(reference, "bookworm", into="engine")
        image = store.build(write(tmp_path / "on-it", Dockerfile=f"FROM {reference}\nRUN echo 6*7 | bc > /sum\n"))
        assert (image.rootfs / "sum").read_text() == "42\n"
        assert store.manifest(image).notes == (f"{reference}: not the public image but a minimal bookworm with bc",)
        found = topmost(image.layers, "/usr/bin/su")
        assert found is not None
        assert found[1].st_mode & 0o4000
        assert b"".join(engine.api.get_image(reference))[:100]  # an engine that cannot read a layer back says so here
        assert engine.image(reference)["Config"]["Cmd"] == ["bash"]
    finally:
        engine.api.remove_image(reference, force=True)


def test_names_that_cannot_be(store: ImageStore) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a container image"):
        store.make_base("Debian Slim", "bookworm")
