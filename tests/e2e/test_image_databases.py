"""Images with databases, and images that start from other images: what comes of what is said."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import verb_app
from tests.image_lab import write_spec
from tests.small_image import build_small_image
from tvsnap.images import Image, ImageBuildError, ImageNotFound, ImageSpecError, ImageStore
from tvsnap.images import store as store_module
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits
from tvsnap.plugins.sql.databases.loading import STAGE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root's rights")

MYSQL_DUMP = """-- MySQL dump 10.13  Distrib 8.0.30
CREATE USER 'admin'@'%' IDENTIFIED BY 'admin';
CREATE DATABASE `zoo` /*!80016 DEFAULT ENCRYPTION='N' */;
USE `zoo`;
CREATE TABLE `Animals` (`Id` int NOT NULL AUTO_INCREMENT, `Name` varchar(20), PRIMARY KEY (`Id`)) ENGINE=InnoDB;
INSERT INTO `Animals` VALUES (1,'it\\'s a cat'),(2,NULL);
CREATE DATABASE `farm`;
USE `farm`;
CREATE TABLE `Cows` (`Id` int NOT NULL);
INSERT INTO `Cows` VALUES (7);
"""


@pytest.fixture(scope="session")
def python_home(terminal_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the images `plain`, which has a shell, and `python`, which has Python and SQLite too."""
    home = tmp_path_factory.mktemp("databases")
    build_small_image(terminal_image, home)
    store = ImageStore(home)
    plain = write_spec(home / "plain", "{image: small, files: [{source: tree, dest: /}], env: {A: a, B: b}}")
    (plain / "tree/usr/bin").mkdir(parents=True)
    (plain / "tree/usr/bin/sh").symlink_to("bash")
    store.build(plain)
    python = write_spec(home / "python", "{image: plain, files: [{source: tree, dest: /}]}")
    copy_python(terminal_image.rootfs.resolve(), python / "tree")
    store.build(python)
    return home


def copy_python(system: Path, tree: Path) -> None:
    """Copies the Python and the SQLite of an image, as far as a session needs them."""
    library = next((system / "usr/lib").glob("python3.*"))
    unused = shutil.ignore_patterns("test", "__pycache__", "idlelib", "lib2to3", "config-*", "dist-packages", "pydoc*")
    shutil.copytree(library, tree / library.relative_to(system), symlinks=True, ignore=unused)
    python = (system / "usr/bin/python3").resolve()
    programs = [f"/usr/bin/{python.name}", "/usr/bin/sqlite3"]
    modules = [f"/{path.relative_to(system)}" for path in (library / "lib-dynload").glob("*.so")]
    listed = subprocess.run(
        ["chroot", str(system), "ldd", *programs, *modules],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in {*programs, *re.findall(r"(/\S+) \(0x", listed)}:
        target = tree / (name if name.startswith("/usr") else f"/usr{name}").lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(os.path.realpath(f"{system}{name}"), target)
        target.chmod(0o755)
    (tree / "usr/bin/python3").symlink_to(python.name)


@pytest.fixture
def store(python_home: Path) -> ImageStore:
    """The images of `python_home`."""
    return ImageStore(python_home)


def rows(image: Image, database: str, query: str) -> list[Any]:
    """What a query of a database in an image's tree returns."""
    with contextlib.closing(sqlite3.connect(image.rootfs / f"srv/sqlite/{database}.db")) as connection:
        return connection.execute(query).fetchall()


class TestLoading:
    def test_all_formats(self, store: ImageStore, tmp_path: Path) -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as old:
            old.executescript("CREATE TABLE o (v); INSERT INTO o VALUES (x'00ff')")
        folder = write_spec(
            tmp_path / "img",
            """
            image: python
            environment: sqlite
            databases:
              shop: [schema.sql, items.csv.gz]
              legacy: old.db
            """,
            schema__sql="CREATE TABLE t (a); INSERT INTO t VALUES ('it''s; here');",
            items__csv__gz=gzip.compress(b"id,name\n1,pear\n2,\n"),
            old__db=(tmp_path / "old.db").read_bytes(),
        )
        image = store.build(folder)

        assert rows(image, "shop", "SELECT * FROM t") == [("it's; here",)]
        assert rows(image, "shop", "SELECT * FROM items ORDER BY id") == [(1, "pear"), (2, None)]
        assert rows(image, "legacy", "SELECT * FROM o") == [(b"\x00\xff",)]
        assert store.manifest(image).contents["databases"] == ("legacy", "shop")
        assert json.loads((image.rootfs / "etc/tvsnap/sql.json").read_text()) == {"database": "shop"}
        assert not (image.rootfs / STAGE.lstrip("/")).exists()
        assert list((image.rootfs / "tmp").iterdir()) == list((image.rootfs / "run").iterdir()) == []
        assert (image.environment, image.env["A"], image.hostname) == ("sqlite", "a", "sandbox")

        # What the files hold counts, and not when they were written.
        os.utime(folder / "schema.sql", (1, 1))
        assert store.build(folder).created == image.created
        (folder / "schema.sql").write_text("CREATE TABLE t (a);")
        assert rows(store.build(folder), "shop", "SELECT * FROM t") == []

    def test_a_dump_of_mysql(self, store: ImageStore, tmp_path: Path) -> None:
        """It is known by its looks, names its databases itself, and the first of them is in use."""
        text = "{image: python, environment: sqlite, databases: [dump.sql]}"
        image = store.build(write_spec(tmp_path / "img", text, dump__sql=MYSQL_DUMP))
        assert rows(image, "zoo", "SELECT Id, Name FROM Animals ORDER BY Id") == [(1, "it's a cat"), (2, None)]
        assert rows(image, "farm", "SELECT Id FROM Cows") == [(7,)]
        manifest = store.manifest(image)
        assert manifest.contents["databases"] == ("farm", "zoo")
        assert any("users" in note for note in manifest.notes)
        assert json.loads((image.rootfs / "etc/tvsnap/sql.json").read_text()) == {"database": "zoo"}

    def test_a_base_with_databases(self, store: ImageStore, tmp_path: Path) -> None:
        """They stay; what comes later is added, and is in use if nothing else is said."""
        text = "{image: python, environment: sqlite, databases: {one: one.sql}}"
        store.build(write_spec(tmp_path / "first", text, one__sql="CREATE TABLE a (x)"))
        same = store.build(write_spec(tmp_path / "same", "{image: first, env: {C: c}}"))
        assert store.manifest(same).contents["databases"] == ("one",)
        assert (same.environment, same.env["C"]) == ("sqlite", "c")
        folder = write_spec(tmp_path / "second", "{image: first, databases: [two.csv]}", two__csv="x\n1\n")
        second = store.build(folder)
        assert store.manifest(second).contents["databases"] == ("one", "two")
        assert rows(second, "one", "SELECT count(*) FROM a") == [(0,)]
        assert rows(second, "two", "SELECT x FROM two") == [(1,)]
        assert json.loads((second.rootfs / "etc/tvsnap/sql.json").read_text()) == {"database": "two"}
        write_spec(folder, "{image: first, databases: [two.csv], database: one}")
        chosen = store.build(folder)
        assert json.loads((chosen.rootfs / "etc/tvsnap/sql.json").read_text()) == {"database": "one"}

    @pytest.mark.parametrize(
        ("databases", "content", "complaint"),
        [
            ("{shop: bad.sql}", b"CREATE TABLE t (a); INSERT INTO nowhere VALUES (1);", "bad.sql.*nowhere"),
            ("[bad.csv]", b"a,b\n1,2\n3\n", "bad.csv.*line 3"),
            ("[bad.db]", b"no database", "bad.db"),
            ("[bad.sql.gz]", b"no gzip", "gzip"),
            ("{other: bad.sql}", MYSQL_DUMP.encode(), r"names its databases itself \(zoo, farm\).*instead of as other"),
            (
                "[bad.sql]",
                b"-- MySQL dump 10\nREPLACE INTO t VALUES (1);",
                "line 2: this cannot be translated for sqlite",
            ),
            ("[bad.csv]\ndatabase: nope", b"a\n1\n", 'no database "nope", .*there are: bad'),
        ],
    )
    def test_failures(
        self, store: ImageStore, python_home: Path, tmp_path: Path, databases: str, content: bytes, complaint: str
    ) -> None:
        text = f"image: python\nenvironment: sqlite\ndatabases: {databases}"
        name = re.search(r"bad[.a-z]+", databases)
        assert name is not None
        folder = write_spec(tmp_path / "broken", text, **{name[0].replace(".", "__"): content})
        before = sorted((python_home / "images").iterdir())
        with pytest.raises(ImageBuildError, match="image broken: step 2 of 3: databases: ") as caught:
            store.build(folder)
        assert re.search(complaint, f"{caught.value}\n{caught.value.output}")
        assert sorted((python_home / "images").iterdir()) == before

    def test_an_image_without_python(self, store: ImageStore, tmp_path: Path) -> None:
        with pytest.raises(ImageBuildError) as caught:
            store.build(write_spec(tmp_path / "bare", "{image: plain, environment: sqlite}"))
        assert "databases need python3: add it to packages" in caught.value.output

    def test_no_links_are_followed(self, store: ImageStore, tmp_path: Path) -> None:
        """An image that comes from elsewhere may have links to anywhere where files are put and swept up."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "kept").write_text("kept")
        step = f"rm -rf /tmp && ln -s {outside} /tmp && ln -s {outside} {STAGE} && ln -s {outside} /etc/tvsnap"
        text = json.dumps({"image": "python", "environment": "sqlite", "run": [step]})
        store.build(write_spec(tmp_path / "hostile", text))
        assert [path.name for path in outside.iterdir()] == ["kept"]


class TestBase:
    def test_what_is_taken_over(self, store: ImageStore, tmp_path: Path) -> None:
        base = write_spec(
            tmp_path / "base",
            "{image: plain, environment: special, env: {A: a, B: b}, workdir: /w, user: '7:8', hostname: box,"
            " limits: {memory: 64M, cpus: 2}, timeouts: {agent: 5}, run: ['ln -s x /link; chmod 4755 /usr/bin/id']}",
        )
        first = store.build(base)
        again = store.build(write_spec(tmp_path / "next", "{image: base, env: {B: c}, limits: {cpus: 1}}"))
        assert (again.environment, again.workdir, again.user, again.hostname) == ("special", "/w", "7:8", "box")
        assert again.env == {**first.env, "B": "c"}
        assert again.limits == ImageLimits(memory=64 << 20, cpus=1.0)
        assert again.timeouts.agent == 5
        assert os.readlink(_top(again, "link")) == "x"
        for name in ("usr/bin/id", "etc", "usr/lib"):
            old, new = _top(first, name).stat(), _top(again, name).stat()
            assert (old.st_mode, old.st_uid, old.st_gid) == (new.st_mode, new.st_uid, new.st_gid)

        # Another base under the name is another image.
        write_spec(base, "{image: plain, run: ['touch /new']}")
        store.build(base)
        newer = store.build(tmp_path / "next")
        assert newer.digest != again.digest
        assert _top(newer, "new").exists()

    def test_what_cannot_be(self, store: ImageStore, tmp_path: Path) -> None:
        with pytest.raises(ImageSpecError, match=r'image x: what it starts from is not there: image "nope" not found'):
            store.build(write_spec(tmp_path / "x", "image: nope"))
        with pytest.raises(ImageSpecError, match=r"plain cannot start from itself \(plain <- plain\): give it another"):
            store.build(write_spec(tmp_path / "y", "image: plain"), name="plain")
        with pytest.raises(ImageSpecError, match='image z: databases: the environment "terminal" has none'):
            store.build(write_spec(tmp_path / "z", "{image: plain, databases: [a.sql]}", a__sql=""))

    def test_shipped_images_are_built_when_they_are_needed(
        self, store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_spec(tmp_path / "ships", "{image: plain, run: ['touch /one']}")
        ours = {"ships": folder, "a": tmp_path / "a", "b": tmp_path / "b"}
        monkeypatch.setattr(store_module, "shipped_images", lambda: ours)
        user = write_spec(tmp_path / "user", "image: ships")
        assert _top(store.build(user), "one").exists()
        first = store.get("ships")
        assert store.build(user).created >= first.created == store.get("ships").created

        # A newer tvsnap brings another one; a user's own image of the name stays.
        write_spec(folder, "{image: plain, run: ['touch /two']}")
        assert _top(store.build(user), "two").exists()
        own = store.build(write_spec(tmp_path / "own", "{image: plain, run: ['touch /own']}"), name="ships")
        assert _top(store.build(user), "own").exists()
        assert store.get("ships") == own

        write_spec(tmp_path / "a", "image: b")
        write_spec(tmp_path / "b", "image: a")
        with pytest.raises(ImageSpecError, match=r"cannot start from itself \(a <- b <- a\)"):
            store.build(tmp_path / "a")


class TestCommandLine:
    @pytest.fixture
    def run(self, python_home: Path) -> Callable[..., Any]:
        app = verb_app("image")
        variables = {"TVSNAP_HOME": str(python_home), "COLUMNS": "200"}
        return lambda *arguments: CliRunner().invoke(app, ["image", *arguments], env=variables)

    def test_build_and_show(self, run: Callable[..., Any], store: ImageStore, tmp_path: Path) -> None:
        store.build(write_spec(tmp_path / "lite", "{image: python, environment: sqlite}"))
        (tmp_path / "schema.sql").write_text("CREATE TABLE t (a);")
        (tmp_path / "items.csv").write_text("x\n1\n")
        files = [f"--database=shop={tmp_path}/schema.sql", f"--database=shop={tmp_path}/items.csv"]
        more = f"--database={tmp_path}/items.csv"
        built = run("build", "lite", "--name", "shop", *files, more, "--no-warm", "--json")
        assert built.exit_code == 0, built
        assert json.loads(built.stdout)["warmed"] is None
        assert "step 2 of 3: databases: shop, items.csv" in built.stderr
        image = store.get("shop")
        assert rows(image, "shop", "SELECT * FROM items") == rows(image, "items", "SELECT * FROM items") == [(1,)]
        assert json.loads(run("show", "shop", "--json").stdout)["databases"] == ["items", "shop"]
        assert re.search(r"databases +items, shop", run("show", "shop").stdout)
        again = json.loads(run("build", "lite", "--name", "shop", *files, more, "--no-warm", "--json").stdout)
        assert (again["built"], again["digest"]) == (False, image.digest)

    def test_a_folder_gets_more(self, run: Callable[..., Any], store: ImageStore, tmp_path: Path) -> None:
        text = "{image: python, environment: sqlite, databases: [own.csv]}"
        folder = write_spec(tmp_path / "mine", text, own__csv="x\n1\n")
        (tmp_path / "more.csv").write_text("x\n2\n")
        assert run("build", str(folder), "--database", f"{tmp_path}/more.csv", "--no-warm").exit_code == 0
        assert store.manifest(store.get("mine")).contents["databases"] == ("more", "own")

    @pytest.mark.parametrize(
        ("arguments", "kind", "complaint"),
        [
            (["plain", "--name", "x", "--database", "nope.sql"], UsageError, "--database: nope.sql does not exist"),
            (["plain", "--name", "x", "--database", "/etc"], UsageError, "--database: /etc is no file"),
            (["plain", "--name", "x", "--database", "/etc/hosts"], UsageError, "told by how its name ends: .sql, .csv"),
            (["plain", "--name", "x", "--database", "a b={sql}"], UsageError, '"a b" cannot be the name of a database'),
            (["plain", "--database", "{sql}"], UsageError, "needs a name other than plain: add --name NAME"),
            (["nope", "--name", "x", "--database", "{sql}"], ImageNotFound, 'image "nope" not found; have:'),
            (
                ["./nope", "--name", "x", "--database", "{sql}"],
                ImageNotFound,
                "there is no folder ./nope",
            ),
            (["plain", "--name", "x", "--database", "{sql}"], ImageSpecError, 'image x: .* "terminal" has none'),
            (["plain", "--name", "x", "--database", "{sql}", "--dialect", "x"], UsageError, "--dialect: must be mysql"),
            (["plain", "--dialect", "mysql"], UsageError, "--dialect is for the files of --database"),
        ],
    )
    def test_mistakes(
        self, run: Callable[..., Any], tmp_path: Path, arguments: list[str], kind: type[Exception], complaint: str
    ) -> None:
        (tmp_path / "a.sql").write_text("")
        result = run("build", *(word.replace("{sql}", str(tmp_path / "a.sql")) for word in arguments))
        assert isinstance(result.exception, kind)
        assert re.search(complaint, str(result.exception))


def _top(image: Image, path: str) -> Path:
    """Returns where a file of an image is, which may share it with others."""
    return next(layer / path for layer in image.layers if os.path.lexists(layer / path))
