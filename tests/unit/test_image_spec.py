"""What image.yaml may say, and where images are looked for."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image_lab import CHECKOUT, write_spec
from tvsnap.host.home import resolve_home
from tvsnap.images import (
    ImageNotFound,
    ImageSpecError,
    find_source,
    load_source,
    shipped_images,
)
from tvsnap.images.descriptions.document import load_yaml
from tvsnap.images.descriptions.spec import DebianBase, FileCopy, OciBase
from tvsnap.model.errors import MachineLacks, TvsnapError, UsageError

MERGE_BOMB = f"a: &a {{{', '.join(f'k{n}: 1' for n in range(2000))}}}\n" + "".join(
    f"b{n}: {{<<: *a}}\n" for n in range(100)
)
"""Mappings that merge a large one: few lines, and 200,000 keys."""


def test_mappings_are_merged(tmp_path: Path) -> None:
    folder = write_spec(
        tmp_path / "img", "debian: &d {suite: bookworm}\nenv: {<<: [{A: '1', B: '1'}, {B: '2'}], C: '3'}"
    )
    assert load_source(folder).env == {"A": "1", "B": "1", "C": "3"}


def test_mappings_that_merge_each_other_again_and_again_hold_each_key_once(tmp_path: Path) -> None:
    """In each version of PyYAML, some of which would multiply the keys until the memory is used up."""
    (tmp_path / "file").write_text(
        "a0: &a0 {k: v}\n"
        + "".join(f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}], k{n}: v}}\n" for n in range(40))
        + "itself: &itself {<<: *itself, k: v}\n"
    )
    loaded = load_yaml(tmp_path / "file")
    assert loaded["a40"] == {"k": "v", **{f"k{n}": "v" for n in range(40)}}
    assert loaded["itself"] == {"k": "v"}


def test_nothing_is_imported_for_images_before_one_is_described_or_built() -> None:
    """It takes longer than most commands, which read none."""
    needless = {"docker", "pydantic", "requests", "yaml"}
    code = f"import sys, tvsnap, tvsnap.images; tvsnap.Cache; print({needless} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


class TestSpec:
    def test_everything(self, tmp_path: Path) -> None:
        (tmp_path / "img/data").mkdir(parents=True)
        (tmp_path / "img/data/a.txt").write_text("a")
        folder = write_spec(
            tmp_path / "img",
            """
            name: mine
            environment: terminal
            debian: {suite: trixie, mirror: "http://archive.example/debian"}
            packages: [bash, g++, bash]
            files:
              - {source: data, dest: /srv/}
              - {source: data/a.txt, dest: /srv/, owner: "agent:agents"}
              - {content: "hello", dest: /etc/motd, mode: "0600"}
            run: [echo hi]
            env: {LANG: C.UTF-8}
            workdir: /app/
            user: 1000
            hostname: box
            no_new_privileges: false
            """,
        )
        spec = load_source(folder)
        assert spec.base == DebianBase("trixie", "http://archive.example/debian")
        assert spec.packages == ("bash", "g++")
        assert spec.files == (
            FileCopy(folder / "data", None, "/srv/", None, "root"),
            FileCopy(folder / "data/a.txt", None, "/srv/a.txt", None, "agent:agents"),
            FileCopy(None, "hello", "/etc/motd", 0o600, "root"),
        )
        assert (spec.name, spec.run, spec.env) == ("mine", ("echo hi",), {"LANG": "C.UTF-8"})
        assert (spec.workdir, spec.user, spec.hostname) == ("/app", "1000", "box")
        assert spec.no_new_privileges is False

    def test_defaults(self, tmp_path: Path) -> None:
        spec = load_source(write_spec(tmp_path / "plain", "debian:"))
        assert spec.name == "plain"
        assert spec.environment == "terminal"
        assert spec.base == DebianBase("bookworm", None)
        assert (spec.packages, spec.files, spec.run, spec.env) == ((), (), (), {})

    def test_oci_with_a_tag(self, tmp_path: Path) -> None:
        (tmp_path / "layout").mkdir()
        folder = write_spec(tmp_path / "img", "oci: {path: ../layout, tag: v1}")
        assert load_source(folder, [tmp_path / "layout"]).base == OciBase(folder / "../layout", "v1")

    @pytest.mark.parametrize("said", ["directory: ../tree", "tar: ../a.tar", "oci: {path: ../tree}", "directory: link"])
    def test_a_base_outside_the_folder(self, tmp_path: Path, said: str) -> None:
        """A description that came from elsewhere names what is the user's: only with leave."""
        (tmp_path / "tree").mkdir()
        (tmp_path / "a.tar").touch()
        folder = write_spec(tmp_path / "img", said)
        (folder / "link").symlink_to("../tree")
        for allow in ([], [tmp_path / "tr"]):
            with pytest.raises(ImageSpecError, match=r"lies outside the image's folder; .*--allow"):
                load_source(folder, allow)
        load_source(folder, [tmp_path])

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "must be a mapping with the keys name, environment, debian"),
            ("[1]", "must be a mapping"),
            ("packages: [git]", "exactly one of these keys .*: debian, directory, tar, oci"),
            ("debian:\ntar: x.tar", "exactly one of these keys"),
            ("debian:\npackagse: [git]", "packagse: unknown key; allowed here: .*packages"),
            ("debian: {siute: sid}", "debian.siute: unknown key; allowed here: suite, mirror"),
            ("debian: {suite: 12}", r"debian.suite: must be .*, not the number 12"),
            ("debian: bookworm", "debian: must be a mapping with the keys suite, mirror, not a string"),
            ("debian: {mirror: somewhere}", "debian.mirror: must be an archive's address as http://"),
            ("debian:\npackages: git", "packages: must be a list, not a string"),
            ("debian:\npackages: [git, 3]", r"packages\[1\]: must be a package's name, not the number 3"),
            ("debian:\npackages: ['git; rm -rf /']", r"packages\[0\]: must be a package's name, not 'git; rm"),
            ("debian:\npackages: [--force]", r"packages\[0\]: must be a package's name"),
            ("debian:\nrun: [[ls]]", r"run\[0\]: must be a shell command, not a list"),
            ("debian:\nrun: ['  ']", r"run\[0\]: is an empty command"),
            ("debian:\nenv: {A: 1}", r"env.A: must be a string \(in quotes\), not the number 1"),
            ("debian:\nenv: {'A-B': x}", "env.A-B: must be a variable's name of letters, digits and _"),
            ("debian:\nenv: [A]", "env: must be a mapping"),
            ("debian:\nworkdir: app", "workdir: must be an absolute path without '..', not 'app'"),
            ("debian:\nworkdir: /app/../..", "workdir: must be an absolute path"),
            ("debian:\nuser: 'a b'", "user: must be user or user:group"),
            ("debian:\nno_new_privileges: 'no'", "no_new_privileges: must be true or false, not a string"),
            ("debian:\nhostname: A_B", "hostname: must be a host name"),
            ("debian:\nname: 'Up Per'", "name: must be .*lower-case letters"),
            ("directory: nowhere", "directory: .*nowhere does not exist; it must be a directory with a root"),
            ("directory: image.yaml", "directory: .*image.yaml is not a directory"),
            ("tar: .", "tar: .* is not a tar archive"),
            ("oci: {tag: a}", "oci: needs path, an OCI layout"),
            ("debian:\nfiles: [{dest: /a}]", r"files\[0\]: needs exactly one of source .* and content"),
            ("debian:\nfiles: [{dest: /a, source: image.yaml, content: x}]", r"files\[0\]: needs exactly one of"),
            ("debian:\nfiles: [{content: x}]", r"files\[0\]: needs dest"),
            ("debian:\nfiles: [{content: x, dest: a}]", r"files\[0\].dest: must be an absolute path"),
            ("debian:\nfiles: [{content: x, dest: /a/}]", r"files\[0\].dest: must name the file"),
            ("debian:\nfiles: [{content: x, dest: /a, mode: 0644}]", r'files\[0\].mode: must be octal .* as "0644"'),
            ("debian:\nfiles: [{content: x, dest: /a, mode: '9'}]", r"files\[0\].mode: must be octal digits"),
            ("debian:\nfiles: [{source: ., dest: /a, mode: '0644'}]", r"files\[0\].mode: is for single files"),
            ("debian:\nfiles: [{source: ../o, dest: /a}]", r"files\[0\].source: .*does not exist"),
            ("debian:\nfiles: [{source: /etc/passwd, dest: /a}]", r"files\[0\].source: .*outside the image's folder"),
            ("debian:\ndebian:", "line 2, column 1: the key 'debian' is given twice"),
            ("debian: {", "line 1, column 10: "),
            (MERGE_BOMB, "its merges stand for more than 100,000 keys"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, complaint: str) -> None:
        folder = write_spec(tmp_path / "img", text)
        with pytest.raises(ImageSpecError, match=complaint) as caught:
            load_source(folder)
        assert str(caught.value).startswith(str(folder / "image.yaml"))
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == 2

    def test_a_link_does_not_lead_out_of_the_folder(self, tmp_path: Path) -> None:
        folder = write_spec(tmp_path / "img", "debian:\nfiles: [{source: link, dest: /a}]")
        (folder / "link").symlink_to("/etc/passwd")
        with pytest.raises(ImageSpecError, match="outside the image's folder"):
            load_source(folder)

    def test_a_folder_whose_name_no_image_can_have(self, tmp_path: Path) -> None:
        with pytest.raises(ImageSpecError, match=r"name \(by default the folder's\): \"Up Per\" cannot be the name"):
            load_source(write_spec(tmp_path / "Up Per", "debian:"))

    def test_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "image.yaml").write_bytes(b"debian: \xff")
        with pytest.raises(ImageSpecError, match="not UTF-8"):
            load_source(tmp_path)

    def test_shipped(self) -> None:
        folder = find_source("terminal")
        assert folder == shipped_images()["terminal"] == CHECKOUT / "images/terminal"
        spec = load_source(folder)
        assert (spec.name, spec.environment, spec.workdir) == ("terminal", "terminal", "/app")
        assert {"bash", "git", "python3", "tmux", "vim", "less", "gcc", "make"} <= set(spec.packages)

    def test_no_such_source(self, tmp_path: Path) -> None:
        with pytest.raises(ImageNotFound, match=r'"nope" is neither .*terminal.* nor a folder'):
            find_source("nope")
        with pytest.raises(ImageNotFound, match=r"has none of image.yaml"):
            find_source(tmp_path)


class TestHome:
    def test_order(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TVSNAP_HOME", str(tmp_path / "from-environment"))
        assert resolve_home(tmp_path / "given") == tmp_path / "given"
        assert resolve_home() == tmp_path / "from-environment"
        assert stat.S_IMODE((tmp_path / "given").stat().st_mode) == 0o700

    def test_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TVSNAP_HOME", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert resolve_home() == tmp_path / "tvsnap"

    def test_no_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="is no directory; choose another with --home"):
            resolve_home(tmp_path / "file")
        with pytest.raises(UsageError, match="is no directory"):
            resolve_home(tmp_path / "file" / "below")

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.ENOENT, UsageError),
            (errno.EPERM, UsageError),
            (errno.ENAMETOOLONG, UsageError),
            (errno.EACCES, MachineLacks),
            (errno.EROFS, MachineLacks),
            (errno.ENOSPC, MachineLacks),
        ],
    )
    def test_no_directory_can_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TvsnapError]
    ) -> None:
        def fail(*_arguments: object, **_options: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "mkdir", fail)
        with pytest.raises(TvsnapError, match=f"{os.strerror(number)}; choose another with --home") as raised:
            resolve_home(tmp_path / "home")
        assert type(raised.value) is kind

    def test_no_rights(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(MachineLacks, match="no rights to read and write"):
            resolve_home(tmp_path)
