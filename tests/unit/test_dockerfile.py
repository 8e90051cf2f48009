"""What is read from a Dockerfile before it is built, and what of a container image's configuration is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tvsnap.images import ImageSpecError, ImageStore, load_source
from tvsnap.images.build.context import context_signature, pack_context
from tvsnap.images.build.plain_dockerfile import plain_dockerfile
from tvsnap.images.descriptions.config import keeps_alive, read_config, unused_command
from tvsnap.images.descriptions.dockerfile import Dockerfile, read_dockerfile
from tvsnap.images.descriptions.spec import DockerfileBase, DockerImageBase
from tvsnap.images.descriptions.variables import expand
from tvsnap.images.errors import BuildStepFailed
from tvsnap.model.images import ImageLimits, Timeouts


def read(tmp_path: Path, text: str, target: str | None = None, **args: str) -> Dockerfile:
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    return read_dockerfile(path, args, target)


class TestDockerfile:
    """Which images it needs, and whether BuildKit."""

    def test_images_of_stages_and_copies(self, tmp_path: Path) -> None:
        text = """
            # escape=\\
            ARG VERSION=3.11
            ARG FLAVOUR="slim"
            FROM --platform=linux/amd64 python:${VERSION}-$FLAVOUR AS Build
            ARG VERSION
            RUN make \\
                # a comment between
                all
            FROM build AS again
            COPY --from=0 /a /a
            COPY --from=tools:1 /b /b
            COPY --from=Build /c /c
            FROM scratch
            FROM alpine
            """
        assert read(tmp_path, text) == Dockerfile(("python:3.11-slim", "tools:1", "alpine"), (), "alpine")
        assert read(tmp_path, text, VERSION="3.12").images[0] == "python:3.12-slim"
        assert read(tmp_path, text, target="build").images == ("python:3.11-slim",)
        assert read(tmp_path, text, target="again").base == "python:3.11-slim"
        assert read(tmp_path, "FROM a AS b\nFROM scratch\nCOPY --from=b /x /x\n").base == ""

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("RUN --mount=type=cache,target=/c make", "line 2: RUN --mount"),
            ("RUN --network=none make", "line 2: RUN --network"),
            ("COPY --chmod=755 a /a", "line 2: COPY --chmod"),
            ("COPY --link a /a", "line 2: COPY --link"),
            ("ADD --checksum=sha256:0 http://x /a", "line 2: ADD --checksum"),
            ("COPY <<EOF /a\nFROM inside\nEOF", "line 2: COPY <<"),
            ('RUN <<-"END" sh\n\techo FROM inside\n\tEND', "line 2: RUN <<"),
            ("FROM --platform=$BUILDPLATFORM base", "line 2: FROM with the builder's platform"),
        ],
    )
    def test_what_needs_buildkit(self, tmp_path: Path, line: str, reason: str) -> None:
        assert read(tmp_path, f"FROM base\n{line}\nRUN true\n") == Dockerfile(("base",), (reason,), "base")

    @pytest.mark.parametrize(
        "line", ["COPY --chown=a:b a /a", "RUN cat <<EOF", 'RUN echo "--mount"', "RUN python -c '1<<n'"]
    )
    def test_what_does_not(self, tmp_path: Path, line: str) -> None:
        assert read(tmp_path, f"FROM base\n{line}\n").buildkit == ()

    def test_images_that_mounts_take_from(self, tmp_path: Path) -> None:
        text = "FROM base\nRUN --mount=type=bind,from=tools:2,target=/t make\n"
        assert read(tmp_path, text).images == ("base", "tools:2")


class TestVariables:
    """Variables in Dockerfiles and Compose files."""

    @pytest.mark.parametrize(
        ("text", "expanded"),
        [
            ("$A-${A}-$$A", "1-1-$A"),
            ("${B:-x}${B-y}${E:-x}${E-y}", "xyx"),
            ("${A:+set}${B+set}${E:+set}", "set"),
            ("${B:-${A}}", "1"),
            ("${A:?must be there}${E?must be there}", "1"),
            ("${B:-{${A:-{}}}}", "{1}"),
            ("100$ $1 $", "100$ $1 $"),
        ],
    )
    def test_forms(self, text: str, expanded: str) -> None:
        assert expand(text, {"A": "1", "E": ""}) == expanded

    @pytest.mark.parametrize("text", ["${", "${A", "${1}", "${A!b}", "a${A:-${B}"])
    def test_forms_that_there_are_not(self, text: str) -> None:
        with pytest.raises(ImageSpecError, match="invalid reference"):
            expand(text, {})
        assert expand(text.replace("${B}", ""), {}, lenient=True) == text.replace("${B}", "")

    def test_who_must_be_there(self) -> None:
        for text, why in (("${B:?it is needed}", r"\$B: it is needed"), ("${E:?}", r"\$E: must have a value")):
            with pytest.raises(ImageSpecError, match=why):
                expand(text, {"E": ""})

    def test_who_is_missing(self) -> None:
        missing: list[str] = []
        assert expand("$A $B ${C:-c} ${D:+d} $E", {"E": ""}, missing.append) == "  c  "
        assert missing == ["A", "B"]


class TestContext:
    """The files that are sent to a builder."""

    def base(self, folder: Path, ignored: str = "") -> DockerfileBase:
        (folder / "sub").mkdir(exist_ok=True)
        for name in ("Dockerfile", "kept", "left", "sub/kept", "sub/left"):
            (folder / name).write_text(name)
        if ignored:
            (folder / ".dockerignore").write_text(ignored)
        return DockerfileBase(folder / "Dockerfile", folder)

    def test_ignored_files_are_neither_sent_nor_counted(self, tmp_path: Path) -> None:
        import tarfile

        base = self.base(tmp_path, "# no secrets\n**/left\n\nDockerfile\n")
        before = context_signature(base)
        (tmp_path / "sub/left").write_text("other")
        assert context_signature(base) == before
        (tmp_path / "sub/kept").write_text("other")
        assert context_signature(base) != before
        packed, name = pack_context(base)
        with packed, tarfile.open(fileobj=packed) as tar:
            assert name == "Dockerfile"
            assert sorted(tar.getnames()) == [".dockerignore", "Dockerfile", "kept", "sub", "sub/kept"]

    def test_a_dockerfile_beside_the_context(self, tmp_path: Path) -> None:
        import tarfile

        base = self.base(tmp_path)
        packed, name = pack_context(DockerfileBase(base.path, tmp_path / "sub"))
        with packed, tarfile.open(fileobj=packed) as tar:
            member = tar.extractfile(name)
            assert member is not None
            assert member.read() == b"Dockerfile"

    def test_a_fresh_copy_counts_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        base = self.base(tmp_path / "one")
        (tmp_path / "one/link").symlink_to("kept")
        shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
        os.utime(tmp_path / "two/kept", (1, 1))
        copy = DockerfileBase(tmp_path / "two/Dockerfile", tmp_path / "two")
        assert context_signature(copy) == context_signature(base)
        (tmp_path / "two/link").unlink()
        (tmp_path / "two/link").symlink_to("left")
        assert context_signature(copy) != context_signature(base)

    def test_modes_and_the_dockerfile_count(self, tmp_path: Path) -> None:
        base = self.base(tmp_path)
        signatures = {context_signature(base)}
        os.chmod(tmp_path / "kept", 0o755)
        signatures.add(context_signature(base))
        (tmp_path / "Dockerfile").write_text("other")
        signatures.add(context_signature(base))
        assert len(signatures) == 3


class TestConfig:
    """What a container image says about how to run it."""

    def test_what_is_taken_over_and_what_is_named(self) -> None:
        config = read_config(
            {
                "Env": ["A=b=c", "EMPTY=", "=odd"],
                "WorkingDir": "/app",
                "User": "agent",
                "Entrypoint": ["/entry.sh"],
                "Cmd": ["serve"],
                "Volumes": {"/data": {}},
                "ExposedPorts": {"80/tcp": {}},
                "Healthcheck": {"Test": ["CMD", "true"]},
                "StopSignal": "SIGINT",
                "Shell": ["/bin/bash", "-c"],
                "OnBuild": ["RUN true"],
            }
        )
        assert (config.env, config.workdir, config.user) == ({"A": "b=c", "EMPTY": ""}, "/app", "agent")
        assert config.volumes == ("/data",)
        assert [note.split(":")[0].split()[0] for note in config.notes] == [
            "ENTRYPOINT",
            "VOLUME",
            "EXPOSE",
            "HEALTHCHECK",
            "STOPSIGNAL",
            "SHELL",
            "ONBUILD",
        ]

    def test_nothing_said_is_nothing_to_name(self) -> None:
        assert read_config({"Cmd": ["python3"], "Healthcheck": {"Test": ["NONE"]}, "Env": None}).notes == ()

    @pytest.mark.parametrize(
        "words",
        [
            ["sh", "-c", "sleep infinity"],
            ["/bin/bash", "-lc", "exec sleep infinity"],
            ["/bin/sleep", "3600"],
            ["tail", "-f", "/dev/null"],
            ["bash", "-l"],
            ["python3"],
            ["/usr/bin/tini", "--", "sleep", "infinity"],
            ["dumb-init", "-v", "sh", "-c", "sleep infinity"],
            [],
        ],
    )
    def test_programs_that_only_keep_a_container_alive(self, words: list[str]) -> None:
        assert keeps_alive([], words)
        assert unused_command([], words) == ""

    @pytest.mark.parametrize(
        "words",
        [["sh", "-c", "nginx && sleep infinity"], ["python3", "app.py"], ["sleep"] * 3, ["tini", "--", "serve"]],
    )
    def test_programs_that_do_something(self, words: list[str]) -> None:
        assert unused_command([], words).startswith("CMD [")

    def test_an_entrypoint_before_a_waiting_command_does_something(self) -> None:
        assert not keeps_alive(["/entry.sh"], ["sleep", "infinity"])
        assert keeps_alive(["/bin/sh", "-c"], ["sleep infinity"])


class TestSpec:
    """The keys of image.yaml for containers."""

    def spec(self, folder: Path, text: str) -> Path:
        (folder / "image.yaml").write_text(text)
        (folder / "Dockerfile").write_text("FROM base\n")
        return folder

    def test_dockerfile(self, tmp_path: Path) -> None:
        folder = tmp_path.absolute()
        assert load_source(self.spec(folder, "dockerfile: Dockerfile")).base == DockerfileBase(
            folder / "Dockerfile", folder
        )
        (folder / "sub").mkdir()
        (folder / "sub/Other").write_text("FROM base\n")
        text = "dockerfile: {path: sub/Other, context: ., args: {A: '1'}, target: run}"
        expected = DockerfileBase(folder / "sub/Other", folder / ".", {"A": "1"}, "run")
        assert load_source(self.spec(folder, text)).base == expected
        assert load_source(self.spec(folder, "dockerfile: {context: .}")).base == DockerfileBase(
            folder / "./Dockerfile", folder / "."
        )

    def test_docker_image(self, tmp_path: Path) -> None:
        assert load_source(self.spec(tmp_path, "docker_image: a/b:c")).base == DockerImageBase("a/b:c")
        text = "docker_image: {image: a@sha256:0, pull: never}"
        assert load_source(self.spec(tmp_path, text)).base == DockerImageBase("a@sha256:0", "never")

    def test_limits_and_timeouts(self, tmp_path: Path) -> None:
        text = "debian:\nlimits: {memory: 1.5G, cpus: 2, processes: 256, disk: 3G}\n"
        text += "timeouts: {agent: 900, verifier: 0.5}\n"
        spec = load_source(self.spec(tmp_path, text))
        assert spec.limits == ImageLimits(memory=1536 * 1024 * 1024, processes=256, cpus=2.0, disk=3 << 30)
        assert spec.timeouts == Timeouts(agent=900.0, verifier=0.5)

    def test_limits_that_leave_no_room_are_refused_before_anything_is_built(self, tmp_path: Path) -> None:
        for limits in ("memory: 1000", "processes: 2", "cpus: 0.001"):
            spec = load_source(self.spec(tmp_path, f"docker_image: a/b:c\nlimits: {{{limits}}}"))
            with pytest.raises(ImageSpecError, match=rf"^image \S+: Limits\.{limits.partition(':')[0]}.* must be"):
                ImageStore(tmp_path / "home").build(spec)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("dockerfile: nope", r"dockerfile: .*nope does not exist; it must be a Dockerfile"),
            ("dockerfile: {}", r"dockerfile: needs path, the Dockerfile, or context"),
            ("dockerfile: {path: Dockerfile, context: ..}", r"dockerfile.context: .* lies outside the image's folder"),
            ("dockerfile: /etc/passwd", r"dockerfile: /etc/passwd lies outside the image's folder"),
            ("dockerfile: {path: Dockerfile, args: [A]}", r"dockerfile.args: must be a mapping"),
            ("docker_image: '--rm'", r"docker_image: must be an image's reference or id"),
            ("docker_image: {image: a, pull: yes}", r"docker_image.pull: must be missing, always or never"),
            ("docker_image: a\ndebian:", r"exactly one of these keys"),
            ("debian:\nlimits: {memory: much}", r"limits.memory: must be a size"),
            ("debian:\nlimits: {cpus: -1}", r"limits.cpus: must be how many processors"),
            ("debian:\ntimeouts: {agent: soon}", r"timeouts.agent: must be a number of seconds"),
            ("debian:\ntimeouts: {agent: 1e10}", r"timeouts.agent: must be at most 31622400 seconds"),
            ("debian:\ntimeouts: {test: 1}", r"timeouts.test: unknown key"),
        ],
    )
    def test_complaints(self, tmp_path: Path, text: str, complaint: str) -> None:
        with pytest.raises(ImageSpecError, match=complaint):
            load_source(self.spec(tmp_path, text))


class TestPlain:
    """Dockerfiles for builders without here-documents."""

    def test_here_documents_become_arguments_and_files(self) -> None:
        text = r"""# syntax=docker/dockerfile:1
FROM a
RUN --mount=type=cache,target=/c <<EOF
echo "$A"   'two'
exit 0
EOF
RUN cat <<'END'  >  "/x y"
  $B
END
SHELL ["/bin/bash", "-ec"]
RUN <<-EOF
	echo tabs
	EOF
COPY --link --chmod=755 one <<'TWO' <<THREE /dir/
$kept
TWO
three
THREE
COPY --link \
    b /b
RUN make \
    all
"""
        plain = plain_dockerfile(text)
        assert (
            plain.text
            == r"""# syntax=docker/dockerfile:1
FROM a
RUN --mount=type=cache,target=/c ["/bin/sh", "-c", "echo \"$A\"   'two'\nexit 0\n"]
RUN ["/bin/sh", "-c", "cat <<'END'  >  \"/x y\"\n  $B\nEND\n"]
SHELL ["/bin/bash", "-ec"]
RUN ["/bin/bash", "-ec", "echo tabs\n"]
COPY --chmod=755 one /dir/
COPY --from=tvsnap-here-documents --chmod=755 0/TWO /dir/
COPY --from=tvsnap-here-documents --chmod=755 1/THREE /dir/
COPY b /b
RUN make \
    all
"""
        )
        assert plain.files == {"0/TWO": "$kept\n", "1/THREE": "three\n"}

    def test_variables_of_a_file(self) -> None:
        with pytest.raises(BuildStepFailed, match="line 2: the here-document EOF refers to variables"):
            plain_dockerfile("FROM a\nCOPY <<EOF /x\n$A\nEOF\n")
