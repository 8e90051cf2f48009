"""Exported images are what the image specification says, byte by byte, and nothing is left of those that fail."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import fake_image
from tests.fakes.caches import FakeImages
from tests.unit.cli_helpers import CommandLine, make_command_line
from tvsnap.images.architecture import this_architecture
from tvsnap.images.export import Description, Exported, Format, Tag, write_image
from tvsnap.images.layout import check_output, opened, tar_header
from tvsnap.model.errors import TvsnapError, UsageError

ABOUT = Description(
    env={"PATH": "/bin", "A": "b c"},
    workdir="/srv/\u00e4",
    user="agent:agents",
    labels={"tvsnap.state": "ab" * 32},
    created=1_700_000_000.25,
    origin="a test",
)
TAG = Tag("shop", "broken")


def layer() -> bytes:
    """A root filesystem of one directory and one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        directory = tarfile.TarInfo("./etc")
        directory.type, directory.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(directory)
        file = tarfile.TarInfo("./etc/motd")
        file.size = 3
        tar.addfile(file, io.BytesIO(b"hi\n"))
    return buffer.getvalue()


def export(output: Path | str, *, files: bytes = b"", force: bool = False, **options: Any) -> Exported:
    chosen: dict[str, Any] = {"format": "docker", "tag": TAG, "compress": False, "progress": lambda count: None}
    with opened(str(output), force) as layout:
        return write_image(layout, io.BytesIO(files or layer()), ABOUT, **{**chosen, **options})


def content(path: Path) -> dict[str, bytes]:
    """Returns the files of an exported image by name, from a tar or a directory."""
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with tarfile.open(path) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Returns what a descriptor points to, after a check that it is that."""
    kind, digest = descriptor["digest"].split(":")
    data = files[f"blobs/{kind}/{digest}"]
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
    return data


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(("format", "name"), [("docker", "i.tar"), ("oci", "i.tar"), ("oci", "i/")])
def test_the_chain_of_digests(tmp_path: Path, format: Format, name: str, compress: bool) -> None:
    exported = export(f"{tmp_path}/{name}", format=format, compress=compress)
    files = content(tmp_path / name)
    assert files.pop("oci-layout") == b'{"imageLayoutVersion":"1.0.0"}'
    index = json.loads(files["index.json"])
    assert (index["schemaVersion"], index["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    (found,) = index["manifests"]
    assert found["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert found["platform"] == {"architecture": this_architecture(), "os": "linux"}
    assert found["annotations"] == {
        "org.opencontainers.image.ref.name": "broken",
        "io.containerd.image.name": "docker.io/library/shop:broken",
    }
    manifest = json.loads(blob(files, found))
    assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, found["mediaType"])
    assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    (written,) = manifest["layers"]
    assert written["mediaType"] == "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compress else "")
    data = blob(files, written)
    assert (gzip.decompress(data) if compress else data) == layer()
    config = json.loads(blob(files, manifest["config"]))
    diff_id = f"sha256:{hashlib.sha256(layer()).hexdigest()}"
    assert config == {
        "created": "2023-11-14T22:13:20.250000Z",
        "architecture": this_architecture(),
        "os": "linux",
        "config": {
            "Env": ["A=b c", "PATH=/bin"],
            "Cmd": ["/bin/bash"],
            "WorkingDir": "/srv/\u00e4",
            "User": "agent:agents",
            "Labels": {"tvsnap.state": "ab" * 32},
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": "2023-11-14T22:13:20.250000Z", "created_by": "a test"}],
    }
    assert exported == Exported(
        manifest["config"]["digest"], found["digest"], written["digest"], diff_id, written["size"]
    )
    digests = [each["digest"].replace("sha256:", "blobs/sha256/") for each in (found, manifest["config"], written)]
    assert sorted(files) == sorted([*digests, "index.json", *(["manifest.json"] if format == "docker" else [])])
    if format == "docker":
        assert json.loads(files["manifest.json"]) == [
            {"Config": digests[1], "Layers": [digests[2]], "RepoTags": ["shop:broken"]}
        ]


def test_equal_files_come_to_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        export(tmp_path / name, compress=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_layer_of_more_than_8_gib() -> None:
    """Its size does not fit a plain header, and there is room for but one block."""
    header = tar_header(f"blobs/sha256/{'ab' * 32}", 9 * 1024**3)
    assert len(header) == tarfile.BLOCKSIZE
    member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    assert (member.name, member.size) == (f"blobs/sha256/{'ab' * 32}", 9 * 1024**3)


@pytest.mark.parametrize(
    ("text", "name", "tag", "full"),
    [
        ("shop", "shop", "latest", "docker.io/library/shop:latest"),
        ("shop:1.2-b_C", "shop", "1.2-b_C", "docker.io/library/shop:1.2-b_C"),
        ("me/shop:1", "me/shop", "1", "docker.io/me/shop:1"),
        ("localhost/shop", "localhost/shop", "latest", "localhost/shop:latest"),
        ("host.example:5000/a/b__c:x", "host.example:5000/a/b__c", "x", "host.example:5000/a/b__c:x"),
    ],
)
def test_tags(text: str, name: str, tag: str, full: str) -> None:
    parsed = Tag.parse(text)
    assert (parsed.name, parsed.tag, parsed.full, str(parsed)) == (name, tag, full, f"{name}:{tag}")


@pytest.mark.parametrize(
    "text", ["", "Shop", "a b", "shop:", ":x", "shop:a/b", "-shop", "a//b", "shop\n", "a@sha256:1"]
)
def test_no_tags(text: str) -> None:
    with pytest.raises(UsageError, match="cannot name an image"):
        Tag.parse(text)


class Failing:
    """A stream that fails after its first bytes."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.reads = 0

    def read(self, size: int) -> bytes:
        self.reads += 1
        if self.reads > 2:
            raise self.error
        return bytes(1 << 20)


@pytest.mark.parametrize("output", ["i.tar", "new/", "there/"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), TvsnapError("the sandbox died")])
def test_nothing_is_left_of_what_fails(tmp_path: Path, output: str, error: BaseException) -> None:
    (tmp_path / "there").mkdir()
    files: Any = Failing(error)
    with pytest.raises(type(error)), opened(f"{tmp_path}/{output}", False) as layout:
        write_image(layout, files, ABOUT, format="oci", tag=TAG, compress=False, progress=lambda count: None)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A block with a disk of 2 MB."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root's rights")
@pytest.mark.parametrize("output", ["i.tar", "i/", "./", "-"])
@pytest.mark.parametrize("size", [1_200_000, 3_000_000])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, size: int) -> None:
    with small_disk(tmp_path / "disk") as disk:
        (disk / "taken").mkdir()
        (disk / "taken/other").write_bytes(bytes(1_000_000))
        (disk / "free").mkdir()
        monkeypatch.setenv("TMPDIR", str(disk / "free"))
        monkeypatch.setattr("tempfile.tempdir", None)
        target = "-" if output == "-" else f"{disk}/free/{output}"
        with pytest.raises(TvsnapError, match=rf"cannot write .*: {os.strerror(errno.ENOSPC)}; nothing"):
            export(target, files=os.urandom(size), format="oci")
        assert list((disk / "free").iterdir()) == []


def test_replacing(tmp_path: Path) -> None:
    for output in ("i.tar", "i/"):
        target = f"{tmp_path}/{output}"
        export(target, format="oci")
        before = content(tmp_path / output)
        with pytest.raises(UsageError, match="--force"):
            export(target, files=bytes(1024), format="oci")
        assert content(tmp_path / output) == before
        export(target, files=bytes(1024), format="oci", force=True)
        after = content(tmp_path / output)
        assert after.keys() != before.keys()
        assert len(after) == len(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["i", "i.tar"]


def test_a_directory_that_is_there_stays_what_it_is(tmp_path: Path) -> None:
    target = tmp_path / "i"
    target.mkdir(mode=0o700)
    inode = target.stat().st_ino
    export(target, format="oci")
    assert (target.stat().st_ino, target.stat().st_mode & 0o777) == (inode, 0o700)
    assert json.loads((target / "index.json").read_bytes())


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.tar").symlink_to("real/i.tar")
    export(tmp_path / "link.tar")
    assert (tmp_path / "link.tar").is_symlink()
    assert "index.json" in content(tmp_path / "real/i.tar")


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").touch()
    with pytest.raises(UsageError, match="no OCI layout"):
        check_output(f"{tmp_path}/mine", force=True)
    with pytest.raises(UsageError, match="there is no directory"):
        check_output(f"{tmp_path}/nowhere/i.tar", force=True)
    with pytest.raises(UsageError, match="is no directory"):
        check_output(f"{tmp_path}/mine/letter/", force=True)
    with pytest.raises(UsageError, match="is no file"):
        check_output("/dev/null", force=True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match="terminal"):
        check_output("-", force=True)


# -- the verb ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tvsnap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return make_command_line(tmp_path, monkeypatch)


def config_of(path: Path) -> dict[str, Any]:
    files = content(path)
    manifest = json.loads(blob(files, json.loads(files["index.json"])["manifests"][0]))
    config: dict[str, Any] = json.loads(blob(files, manifest["config"]))
    return config


def names_in(path: Path) -> list[str]:
    files = content(path)
    manifest = json.loads(blob(files, json.loads(files["index.json"])["manifests"][0]))
    with tarfile.open(fileobj=io.BytesIO(blob(files, manifest["layers"][0]))) as tar:
        return tar.getnames()


def test_a_state(tvsnap: CommandLine, tmp_path: Path) -> None:
    before, after = (call["state"] for call in tvsnap.rollout("echo 1 > f", "mkdir d && cd d && echo 2 > g"))
    data = tvsnap.json("image", "export", after[:10], "-o", "i.tar", "--tag", "shop:broken")
    assert (data["path"], data["state"], data["tag"]) == (str(tmp_path / "i.tar"), after, "shop:broken")
    assert (data["format"], data["bytes"]) == ("docker", (tmp_path / "i.tar").stat().st_size)
    assert {"./task/f", "./task/d/g"} <= set(names_in(tmp_path / "i.tar"))
    config = config_of(tmp_path / "i.tar")["config"]
    assert config["WorkingDir"] == "/task/d"
    assert config["Labels"]["tvsnap.state"] == after
    tvsnap("image", "export", f"{after[:10]}~", "-o", "before/")
    assert "./task/d" not in names_in(tmp_path / "before")
    assert config_of(tmp_path / "before")["config"]["Labels"]["tvsnap.state"] == before


def test_an_image(tvsnap: CommandLine, tmp_path: Path) -> None:
    shown = tvsnap("image", "export", "terminal").stdout
    (path,) = tmp_path.glob("*.tar")
    assert f"docker load -i {path.name}" in shown
    labels = config_of(path)["config"]["Labels"]
    assert labels.keys() == {"tvsnap.image"}
    assert path.name == f"tvsnap-{labels['tvsnap.image'][:12]}.tar"
    with tvsnap.graph() as graph:
        assert list(graph.roots()) == [], "nothing was recorded"


def test_a_state_that_a_replay_does_not_come_to(tvsnap: CommandLine, tmp_path: Path) -> None:
    """No other one is exported in its place."""
    state = tvsnap.json("run", "terminal", "--policy", "never", "-c", "echo $RANDOM > f; cat f")["state"]
    message = tvsnap.error("image", "export", state, "-o", "i.tar", status=1)
    assert f"state {state[:12]} can no longer be reached" in message
    assert not (tmp_path / "i.tar").exists()


def test_standard_output(tvsnap: CommandLine, tmp_path: Path) -> None:
    run = tvsnap("image", "export", "terminal", "-o", "-")
    (tmp_path / "i.tar").write_bytes(run.stdout_bytes)
    assert "./task" in names_in(tmp_path / "i.tar")
    assert "--json" in tvsnap.error("image", "export", "terminal", "-o", "-", "--json", status=2)


def test_what_is_meant(tvsnap: CommandLine) -> None:
    assert "no image is called" in tvsnap.error("image", "export", "termnal", status=3)
    assert "no image is called" in tvsnap.error("image", "export", "abcdef", status=3)
    assert "small letters" in tvsnap.error("image", "export", "terminal", "--tag", "Shop", status=2)
    assert "docker or oci" in tvsnap.error("image", "export", "terminal", "--format", "zip", status=2)
    message = tvsnap.error("image", "export", "terminal", "--format", "docker", "-o", "d/", status=2)
    assert "no directory" in message
    (Path.cwd() / "i.tar").touch()
    assert "--force" in tvsnap.error("image", "export", "terminal", "-o", "i.tar", status=2)
    tvsnap("image", "export", "terminal", "-o", "i.tar", "--force")


def test_a_hash_of_both_kinds(tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tvsnap.rollout("echo 1 > f")[0]["state"]
    monkeypatch.setattr(FakeImages, "get", lambda self, name: fake_image())
    message = tvsnap.error("image", "export", state[:6], status=3)
    assert "give more digits" in message
