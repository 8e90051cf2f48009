"""Builds: what their steps do, and what is left of those that fail or are interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.image_lab import CHECKOUT, Recorder, left_of_builds, write_spec
from tvsnap.images import (
    UID_BASE,
    Image,
    ImageBuildError,
    ImageStore,
    load_source,
)
from tvsnap.images.build.builder import recipe_of
from tvsnap.model.errors import MachineLacks, UsageError


class TestBuild:
    def test_directory(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        (tmp_path / "img/tools").mkdir(parents=True)
        (tmp_path / "img/tools/run-me").write_text("#!/bin/sh\n")
        (tmp_path / "img/tools/run-me").chmod(0o755)
        (tmp_path / "img/tools/link").symlink_to("run-me")
        folder = write_spec(
            tmp_path / "img",
            f"""
            directory: {small_system}
            files:
              - {{content: "hello\\n", dest: /etc/greeting, mode: "0640", owner: agent}}
              - {{source: tools, dest: /opt/tools/}}
            run:
              - cat /etc/greeting > /result; echo printed
              - |
                echo "$COLOUR $PWD $HOME $(id -u)" > seen
                mkdir /made
            env: {{COLOUR: blue}}
            workdir: /srv/here
            user: agent
            """,
        )
        progress = Recorder()
        image = store.build(folder, progress=progress)
        root = image.rootfs
        assert (image.name, image.environment, image.workdir, image.user) == ("img", "terminal", "/srv/here", "agent")
        assert image.env["COLOUR"] == "blue"
        assert "/usr/bin" in image.env["PATH"]
        assert len(image.digest) == 64
        assert root == tmp_path / "home/images" / image.digest / "rootfs"
        assert image.size >= (small_system / "bin/sh").stat().st_size
        assert (root / "result").read_text() == "hello\n"
        assert (root / "srv/here/seen").read_text() == "blue /srv/here /root 0\n"
        info = (root / "etc/greeting").stat()
        assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) == (0o640, UID_BASE + 1000, UID_BASE + 1001)
        assert stat.S_IMODE((root / "opt/tools/run-me").stat().st_mode) == 0o755
        assert os.readlink(root / "opt/tools/link") == "run-me"
        assert {UID_BASE, UID_BASE + 1000} == {path.lstat().st_uid for path in root.rglob("*")}
        assert progress.steps == [
            f"1/5 copy of {small_system}",
            "2/5 files: /etc/greeting, /opt/tools/",
            '3/5 run "cat /etc/greeting > /result; echo printed"',
            '4/5 run "echo "$COLOUR $PWD $HOME $(id -u)" > seen ..."',
            "5/5 finish",
        ]
        assert progress.lines == ["printed"]
        assert "printed" in root.with_name("build.log").read_text()
        assert left_of_builds(tmp_path / "home") == [image.digest]
        assert store.get("img") == image

    @pytest.mark.parametrize(
        ("said", "more", "expected"),
        [
            ("", "", True),
            ("user: 0:0", "", True),
            ("user: agent", "", False),
            ("user: agent\nno_new_privileges: true", "", True),
            ("no_new_privileges: false", "", False),
            ("", "user: agent", False),
            ("user: agent", "user: root", True),
            ("user: agent\nno_new_privileges: true", "hostname: other", True),
            ("no_new_privileges: false", "hostname: other", False),
            ("no_new_privileges: false", "no_new_privileges: true", True),
        ],
    )
    def test_no_new_privileges(
        self, store: ImageStore, small_system: Path, tmp_path: Path, said: str, more: str, expected: bool
    ) -> None:
        """By default where the user is root; what an image says against that holds for those that start from it."""
        image = store.build(write_spec(tmp_path / "base", f"directory: {small_system}\n{said}"))
        if more:
            image = store.build(write_spec(tmp_path / "other", f"image: base\n{more}"))
        assert image.no_new_privileges is expected
        assert store.manifest(image).no_new_privileges is expected

    def test_no_new_privileges_make_another_image(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        """As what is recorded with one must not be answered with the other."""
        texts = [f"directory: {small_system}{more}" for more in ("", "\nno_new_privileges: false")]
        one, other = (store.build(write_spec(tmp_path / "img", text)) for text in texts)
        assert one.digest != other.digest

    def test_unchanged_is_instant_and_changed_is_not(
        self, store: ImageStore, small_system: Path, tmp_path: Path
    ) -> None:
        system = tmp_path / "system"
        shutil.copytree(small_system, system)
        folder = write_spec(tmp_path / "img", f"directory: {system}\nfiles: [{{source: data, dest: /data}}]")
        (folder / "data").write_text("1")

        def built() -> tuple[Image, bool]:
            progress = Recorder()
            image = store.build(folder, progress=progress)
            return image, bool(progress.steps)

        first, _ = built()
        assert built() == (first, False)
        # What counts is what is in the files, and whose they are.
        os.utime(folder / "data", (1, 1))
        assert built() == (first, False)
        (system / "etc/passwd").touch()
        assert built() == (first, False)
        (folder / "data").write_text("2")
        second, _ = built()
        assert second.digest != first.digest
        (folder / "data").chmod(0o600)
        third, _ = built()
        assert third.digest != second.digest
        (folder / "data").write_text("1")
        (folder / "data").chmod(0o644)
        assert built() == (first, False)

    def test_recipe_depends_on_what_is_said(self, small_system: Path, tmp_path: Path) -> None:
        def recipe(more: str) -> str:
            folder = write_spec(tmp_path / "img", f"directory: {small_system}\n{more}")
            return recipe_of(load_source(folder, [small_system]))

        variants = ["", "run: [a]", "run: [a, b]", "env: {A: b}", "workdir: /x", "user: agent", "hostname: x"]
        variants += [
            "packages: [aa]",
            "files: [{content: x, dest: /a}]",
            "files: [{content: x, dest: /a, mode: '600'}]",
        ]
        variants += ["files: [{content: x, dest: /a, owner: agent}]", "environment: sqlite"]
        assert len({recipe(more) for more in variants}) == len(variants)
        assert recipe("packages: [aa, bb]") == recipe("packages: [bb, aa]  # sorted")
        assert recipe("name: other") == recipe("")

    def test_tar_is_like_its_directory(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        archive = tmp_path / "system.tar.gz"
        subprocess.run(["tar", "-C", small_system, "-czf", archive, "."], check=True)
        progress = Recorder()
        from_tar = store.build(write_spec(tmp_path / "a", f"tar: {archive}\nrun: [touch /x]"), progress=progress)
        from_directory = store.build(write_spec(tmp_path / "b", f"directory: {small_system}\nrun: [touch /x]"))
        assert from_tar.digest == from_directory.digest
        assert from_tar.name == "a"
        assert any(done is not None and 0 < done <= 1 for done in progress.fractions)

    def test_steps_are_isolated(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        progress = Recorder()
        folder = write_spec(
            tmp_path / "img",
            f"""
            directory: {small_system}
            run:
              - echo "pid $$"; cat /proc/self/uid_map; ls /proc/1/root; echo x > /dev/null
              - "! mknod /disk b 8 0 2> /dev/null"
              - "! echo 1 > /proc/sys/kernel/sysrq"
              - "(sleep 1000 &)"
            """,
        )
        started = time.monotonic()
        store.build(folder, progress=progress)
        assert time.monotonic() - started < 60
        assert progress.lines[0] == "pid 1"
        assert progress.lines[1].split() == ["0", str(UID_BASE), "65536"]
        assert "home" not in progress.lines
        assert str(tmp_path) not in Path("/proc/self/mounts").read_text()

    def test_a_failing_step_leaves_nothing(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        folder = write_spec(
            tmp_path / "img",
            f"""
            directory: {small_system}
            run:
              - touch /fine
              - |
                echo "no rule to make target"
                false_start || exit 7
            """,
        )
        with pytest.raises(ImageBuildError) as caught:
            store.build(folder)
        error = caught.value
        assert error.step == 'image img: step 3 of 4: run "echo "no rule to make target" ..."'
        assert str(error) == f"{error.step} failed with exit status 7"
        assert error.output.splitlines()[0] == "no rule to make target"
        assert error.exit_status == 1
        assert left_of_builds(tmp_path / "home") == []
        assert store.list() == []

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            ("user: ghost", r'step 2 of 2: finish failed: the image has no user "ghost"; it has: root, agent'),
            ("user: '70000'", "user 70000 is beyond 65535"),
            ("files: [{content: x, dest: /a, owner: 'root:ghosts'}]", 'files: /a failed: the image has no group "gho'),
            ("files: [{content: x, dest: /bin/sh/a}]", "could not make the directory /bin/sh: something else is in"),
            ("workdir: /bin/sh", "could not make the directory /bin/sh: something else"),
            ("packages: [hello]", "step 2 of 3: packages: hello failed with exit status 127"),
            ("run: ['kill -9 $$']", "step 2 of 3"),
        ],
    )
    def test_other_failures(
        self, store: ImageStore, small_system: Path, tmp_path: Path, more: str, complaint: str
    ) -> None:
        folder = write_spec(tmp_path / "img", f"directory: {small_system}\n{more}")
        if "kill" in more:
            store.build(folder)  # the first process of a namespace cannot kill itself
            return
        with pytest.raises(ImageBuildError, match=complaint):
            store.build(folder)
        assert left_of_builds(tmp_path / "home") == []

    def test_no_shell(self, store: ImageStore, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        folder = write_spec(tmp_path / "img", f"directory: {tmp_path / 'empty'}\nrun: [ls]")
        with pytest.raises(ImageBuildError, match=r'run "ls" could not start: .*/bin/sh'):
            store.build(folder)

    def test_what_a_step_has_of_this_process(self, store: ImageStore, small_system: Path, tmp_path: Path) -> None:
        """No signals that are ignored, as Python ignores SIGPIPE; few devices; no files of ours."""
        ignores = (
            "while read -r name value; do [ $name != SigIgn: ] || echo $value; done < /proc/self/status > /ignored"
        )
        devices = "for name in null tty full; do test -c /dev/$name; done; echo /dev/* > /devices; echo x > /dev/null"
        files = "echo /proc/$$/fd/* > /files"
        spec = f"directory: {small_system}\nrun: ['{ignores}', '{devices}', '{files}']"
        root = store.build(write_spec(tmp_path / "img", spec)).rootfs
        assert int((root / "ignored").read_text(), 16) == 0
        names = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
        assert (root / "devices").read_text().split() == [f"/dev/{name}" for name in names.split()]
        assert len((root / "files").read_text().split()) <= 4

    def test_no_rights(self, store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = write_spec(tmp_path / "img", "debian:")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(MachineLacks, match="needs root's rights"):
            store.build(folder)

    def test_no_bootstrap_program(self, store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(MachineLacks, match="apt-get install mmdebstrap"):
            store.build(write_spec(tmp_path / "img", "debian:"))
        assert left_of_builds(tmp_path / "home") == []

    def test_no_right_to_make_namespaces(self, small_system: Path, tmp_path: Path) -> None:
        folder = write_spec(tmp_path / "img", f"directory: {small_system}")
        build = [sys.executable, "-c", BUILDER, str(CHECKOUT), str(tmp_path), str(folder)]
        result = subprocess.run(
            ["setpriv", "--bounding-set=-sys_admin", *build], capture_output=True, text=True, check=False
        )
        assert "MachineLacks: this machine does not allow what building needs (namespaces: Operation" in result.stderr

    def test_unknown_name(self, store: ImageStore, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match='"Not Good" cannot be the name of an image'):
            store.build(write_spec(tmp_path / "img", "debian:"), name="Not Good")


BUILDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tvsnap.images import ImageStore
class Show:
    def step(self, index, total, text): print(text, flush=True)
    def output(self, line): print(line, flush=True)
    def fraction(self, done): pass
print(ImageStore(Path(sys.argv[2])).build(sys.argv[3], progress=Show(), allow=[Path("/")]).digest)
"""


class TestInterrupted:
    @pytest.fixture
    def start(self, tmp_path: Path, small_system: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
        """Starts a build in another process, and waits until its command prints "started"."""
        begun: list[subprocess.Popen[str]] = []

        def do(command: str, wait: bool = True) -> subprocess.Popen[str]:
            folder = write_spec(tmp_path / "img", f"directory: {small_system}\nrun: ['{command}']")
            process = subprocess.Popen(
                [sys.executable, "-c", BUILDER, str(CHECKOUT), str(tmp_path / "home"), str(folder)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            begun.append(process)
            assert process.stdout is not None
            while wait and process.stdout.readline() != "started\n":
                assert process.poll() is None
            return process

        yield do
        for process in begun:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def running(self, seconds: str) -> bool:
        """Whether `sleep SECONDS` runs; gives it a moment to die."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lines = [path for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_sleep(path, seconds)]
            if not lines:
                return False
            time.sleep(0.05)
        return True

    def _is_sleep(self, path: Path, seconds: str) -> bool:
        try:
            return path.read_bytes() == f"sleep\0{seconds}\0".encode()
        except OSError:
            return False

    def test_ctrl_c_leaves_nothing(self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
        process = start("(sleep 86417 &) ; echo started; sleep 86417")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        assert left_of_builds(tmp_path / "home") == []
        assert not self.running("86417")

    def test_kill_leaves_what_the_next_sweeps(
        self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        process = start("(sleep 86418 &) ; echo started; sleep 86418")
        process.kill()
        process.wait()
        assert not self.running("86418")
        assert left_of_builds(tmp_path / "home") != []
        ImageStore(tmp_path / "home").sweep()
        assert left_of_builds(tmp_path / "home") == []

    def test_a_live_build_is_not_swept(self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
        process = start("echo started; sleep 2; touch /done")
        store = ImageStore(tmp_path / "home")
        store.sweep()
        assert len(left_of_builds(tmp_path / "home")) == 1
        assert process.wait(timeout=60) == 0
        assert (store.get("img").rootfs / "done").exists()

    def test_two_at_once_build_once(self, start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
        # Two builds of this would never agree.
        command = "cat /proc/sys/kernel/random/uuid > /id; echo started; until [ -s /go ]; do sleep 0.1; done"
        first = start(command)
        second = start(command, wait=False)
        assert second.stdout is not None
        assert second.stdout.readline() == "another process builds this image: waiting for it\n"
        [build] = (tmp_path / "home/images").glob(".build-*")
        (build / "image/rootfs/go").write_text("now")
        os.chown(build / "image/rootfs/go", UID_BASE, UID_BASE)
        outputs = [process.communicate(timeout=60)[0].splitlines() for process in (first, second)]
        assert outputs[0][-1] == outputs[1][-1]
        assert left_of_builds(tmp_path / "home") == [outputs[0][-1]]
