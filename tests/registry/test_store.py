"""An object store: a folder, memory, and an S3 server; what is damaged, missing, or written by several at once."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.registry.s3 import s3_server
from tvsnap.model.errors import InfrastructureError, NotFound, UsageError
from tvsnap.plugins.object_store import ObjectStore
from tvsnap.plugins.object_store.store import PIECE

Open = Callable[..., ObjectStore]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(params=["folder", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens one store, each time anew."""
    url = str(tmp_path / "store")
    if request.param == "s3":
        url = f"{request.getfixturevalue('s3')}/{secrets.token_hex(4)}"
    return lambda **options: ObjectStore(url, **options)


def test_what_is_put_is_there(opened: Open) -> None:
    store = opened(writes=True)
    pieces = [os.urandom(1000), b"\0" * PIECE, b"x", os.urandom(1000)]
    names = store.put_all(pieces)
    sent = store.sent_bytes
    assert sent < 10_000
    other = opened()
    assert list(other.get_all(names)) == pieces
    assert other.fetched_bytes == sent
    again = opened(writes=True)
    assert again.put_all(pieces) == names
    assert again.sent_bytes == 0


def test_descriptions_are_replaced_and_listed(opened: Open) -> None:
    store = opened(writes=True)
    assert list(store.descriptions("tasks/_one")) == []
    assert store.names("tasks") == []
    store.describe("tasks/_one/a.json", {"n": 1})
    store.describe("tasks/_one/b.json", {"n": 2})
    store.describe("tasks/_one/a.json", {"n": 3})
    store.describe("tasks/_two/a.json", {"n": 4})
    assert [said["n"] for said in opened().descriptions("tasks/_one")] == [3, 2]
    assert opened().names("tasks") == ["_one", "_two"]


def test_many_write_at_once(opened: Open) -> None:
    opened(writes=True)
    pieces = [bytes([number]) * 5000 for number in range(20)]

    def write(number: int) -> list[str]:
        store = opened(writes=True)
        store.describe(f"tasks/_t/{number}.json", {"n": number})
        return store.put_all(pieces)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(write, range(6)))
    assert all(names == found[0] for names in found)
    assert list(opened().get_all(found[0])) == pieces
    assert sorted(said["n"] for said in opened().descriptions("tasks/_t")) == list(range(6))


def test_there_is_none(opened: Open) -> None:
    with pytest.raises(NotFound, match=r"there is no store at .* \(tvsnap push makes one\)"):
        opened()


@pytest.mark.parametrize("url", ["", "nosuch://x/y"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match=r"address|reach"):
        ObjectStore(url)


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(InfrastructureError, match="the store at s3://bucket/x failed"):
        ObjectStore("s3://bucket/x")


def test_a_bucket_that_is_not_there(s3: str) -> None:
    with pytest.raises(NotFound, match="there is no store"):
        ObjectStore("s3://nosuch/x")
    with pytest.raises(InfrastructureError, match="the store at s3://nosuch/x failed"):
        ObjectStore("s3://nosuch/x", writes=True)


def _file_of(folder: Path, name: str) -> Path:
    return folder / "blobs" / name[:2] / name


def test_what_is_damaged_is_said(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path), writes=True)
    name = store.put(b"contents" * 100)
    other = store.put(b"others")
    file = _file_of(tmp_path, name)
    for data in (b"", b"no zstd", file.read_bytes()[:-3], _file_of(tmp_path, other).read_bytes()):
        file.write_bytes(data)
        with pytest.raises(InfrastructureError, match=f"blob {name[:12]} .* is damaged; delete it and push again"):
            ObjectStore(str(tmp_path)).get(name)
    file.unlink()
    with pytest.raises(InfrastructureError, match=f"lacks blob {name[:12]}"):
        ObjectStore(str(tmp_path)).get(name)
    for wrong in ("../../etc/passwd", "ab", "Z" * 64):
        with pytest.raises(InfrastructureError, match="makes no sense"):
            store.get(wrong)


def test_a_description_that_is_damaged_is_said(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path), writes=True)
    store.describe("tasks/_t/a.json", {"n": 1})
    file = tmp_path / "pushes/tasks/_t/a.json"
    whole = file.read_bytes()
    for data in (b"", b"{}", whole[:-2]):
        file.write_bytes(data)
        with pytest.raises(InfrastructureError, match="is damaged"):
            list(store.descriptions("tasks/_t"))


@pytest.mark.parametrize(("text", "reason"), [("{", "is damaged"), ('{"format": 9}', "has format 9")])
def test_another_format(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "tvsnap.json").write_text(text)
    with pytest.raises(InfrastructureError, match=reason):
        ObjectStore(str(tmp_path))


def test_nothing_half_written_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(str(tmp_path), writes=True)

    def fails(path: str, data: bytes) -> None:
        Path(path).write_bytes(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store._files, "pipe_file", fails)
    for write in (lambda: store.put(b"x" * 100), lambda: store.describe("tasks/_t/a.json", {})):
        with pytest.raises(InfrastructureError, match="No space left"):
            write()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "tvsnap.json"]


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InfrastructureError, match="Not a directory"):
        ObjectStore(str(tmp_path / "file" / "store"), writes=True)
