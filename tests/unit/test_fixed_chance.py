"""`clock` and `random_seed` of an image: what image.yaml says, what the image has of it, what the library is told."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.fakes.backend import fake_image
from tests.image_lab import write_spec
from tvsnap.images import UID_BASE, ImageBuildError, ImageSpecError, ImageStore, load_source
from tvsnap.images.preload import LIBRARY
from tvsnap.sandboxes.fixed_clock import SIZE, Clock, StoppedClock, page, write_page

START = 1_704_067_200
SECOND = 10**9


class TestSpec:
    @pytest.mark.parametrize(
        "said",
        [
            "2024-01-01",
            "2024-01-01T00:00:00Z",
            "'2024-01-01T00:00:00Z'",
            "2024-01-01T01:00:00+01:00",
            "2024-01-01T00:00:00",
        ],
    )
    def test_clock(self, tmp_path: Path, said: str) -> None:
        assert load_source(write_spec(tmp_path / "img", f"debian:\nclock: {said}")).clock == START

    def test_random_seed(self, tmp_path: Path) -> None:
        assert load_source(write_spec(tmp_path / "img", "debian:\nrandom_seed: 0")).random_seed == 0

    def test_reseed(self, tmp_path: Path) -> None:
        assert load_source(write_spec(tmp_path / "img", "debian:\nreseed: ./reseed.sh")).reseed == "./reseed.sh"
        with pytest.raises(ImageSpecError, match="reseed: must be a shell command"):
            load_source(write_spec(tmp_path / "img", "debian:\nreseed: 3"))

    def test_neither(self, tmp_path: Path) -> None:
        spec = load_source(write_spec(tmp_path / "img", "debian:"))
        assert (spec.clock, spec.random_seed, spec.reseed) == (None, None, "")

    @pytest.mark.parametrize(
        ("said", "complaint"),
        [
            ("clock: yesterday", "clock: must be a time as 2024-01-01T00:00:00Z, not 'yesterday'"),
            ("clock: 2024-13-01", "clock: must be a time as .*, not '2024-13-01'"),
            ("clock: 1704067200", r"clock: must be a time as 2024-01-01T00:00:00Z, not the number 1704067200"),
            ("clock: 1970-01-01", "clock: must not be before 1990"),
            ("clock: 2999-01-01", "clock: must not be in the future"),
            (
                "random_seed: -1",
                "random_seed: must be a whole number from 0 to 18446744073709551615, not the n.* -1",
            ),
            ("random_seed: 18446744073709551616", "random_seed: must be a whole number"),
            ("random_seed: 1.5", "random_seed: must be a whole number"),
            ("random_seed: true", "random_seed: must be a whole number"),
            ("random_seed: x", "random_seed: must be a whole number .*, not 'x'"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path: Path, said: str, complaint: str) -> None:
        with pytest.raises(ImageSpecError, match=complaint):
            load_source(write_spec(tmp_path / "img", f"debian:\n{said}"))


@pytest.mark.skipif(os.geteuid() != 0, reason="building needs root")
class TestImage:
    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
        build = functools.partialmethod(ImageStore.build, allow=(tmp_path,))
        monkeypatch.setattr(ImageStore, "build", build)
        return ImageStore(tmp_path / "home")

    @pytest.fixture
    def system(self, tmp_path: Path) -> Path:
        """A root filesystem that holds nothing but a loader."""
        root = tmp_path / "system"
        loader = Path("/lib64/ld-linux-x86-64.so.2")
        if not loader.exists():
            loader = Path("/lib/ld-linux-aarch64.so.1")
        target = root / str(loader).lstrip("/")
        target.parent.mkdir(parents=True)
        shutil.copy(loader, target)
        (root / "etc").mkdir()
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        return root

    def test_its_programs_load_the_library(self, store: ImageStore, system: Path, tmp_path: Path) -> None:
        text = f"directory: {system}\nclock: 2024-01-01\nrandom_seed: 7"
        image = store.build(write_spec(tmp_path / "img", text))
        assert (image.clock, image.random_seed) == (START, 7)
        assert (image.rootfs / "etc/ld.so.preload").read_text() == f"{LIBRARY}\n"
        assert store.get("img") == image

    def test_each_makes_another_image(self, store: ImageStore, system: Path, tmp_path: Path) -> None:
        said = (
            "",
            "clock: 2024-01-01",
            "clock: 2024-01-02",
            "random_seed: 7",
            "random_seed: 8",
            "reseed: a",
            "reseed: b",
        )
        images = [store.build(write_spec(tmp_path / "img", f"directory: {system}\n{more}")) for more in said]
        assert len({image.digest for image in images}) == len(said)

    def test_an_image_that_starts_from_it_has_them_too(self, store: ImageStore, system: Path, tmp_path: Path) -> None:
        store.build(write_spec(tmp_path / "base", f"directory: {system}\nclock: 2024-01-01\nrandom_seed: 7\nreseed: a"))
        image = store.build(write_spec(tmp_path / "img", "image: base\nrandom_seed: 8"))
        assert (image.clock, image.random_seed, image.reseed) == (START, 8, "a")
        assert store.get("img") == image
        assert (image.rootfs / "etc/ld.so.preload").read_text() == f"{LIBRARY}\n"

    def test_what_else_is_loaded_stays(self, store: ImageStore, system: Path, tmp_path: Path) -> None:
        (system / "etc/ld.so.preload").write_text(f"/lib/other.so\n{LIBRARY}\n")
        plain = store.build(write_spec(tmp_path / "plain", f"directory: {system}"))
        assert (plain.rootfs / "etc/ld.so.preload").read_text() == "/lib/other.so\n"
        image = store.build(write_spec(tmp_path / "img", f"directory: {system}\nrandom_seed: 7"))
        assert (image.rootfs / "etc/ld.so.preload").read_text() == f"{LIBRARY}\n/lib/other.so\n"

    def test_without_glibc(self, store: ImageStore, tmp_path: Path) -> None:
        root = tmp_path / "musl"
        (root / "etc").mkdir(parents=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        with pytest.raises(ImageBuildError) as raised:
            store.build(write_spec(tmp_path / "img", f"directory: {root}\nclock: 2024-01-01"))
        assert "clock and random_seed need glibc" in str(raised.value)
        assert "leave them out" in str(raised.value)


class TestClock:
    def test_an_image_without_has_none(self) -> None:
        assert Clock.begun(fake_image()) is None

    def test_time_between_a_snapshot_and_a_fork_does_not_count(self) -> None:
        clock = Clock.begun(replace(fake_image(), clock=START))
        assert clock is not None
        stopped = clock.stop()
        time.sleep(0.1)
        assert stopped.gap_s >= 0.1
        spans = stopped.go_on().spans
        assert spans[0] == clock.spans[0]
        assert spans[1][0] - stopped.real >= SECOND // 10
        assert spans[1][1] == stopped.shown
        assert 0 <= stopped.shown - START * SECOND < 10 * SECOND

    def test_as_json(self) -> None:
        stopped = StoppedClock(((1, 2), (3, 4)), 5, 6)
        assert StoppedClock.from_json(asdict(stopped)) == stopped
        assert StoppedClock.from_json(None) is None

    def test_a_clock_that_was_set_back(self) -> None:
        later = time.time_ns() + 3600 * SECOND
        stopped = Clock(((later, START * SECOND),)).stop()
        assert stopped.shown == START * SECOND
        assert stopped.go_on().spans[1][0] > later

    def test_more_spans_than_there_is_room_for(self) -> None:
        stopped = StoppedClock(tuple((n, n) for n in range(4000)), 4000, 4000)
        for _ in range(200):
            clock = stopped.go_on()
            stopped = StoppedClock(clock.spans, clock.spans[-1][0], 4000)
        assert stopped.spans[0] == (0, 0)
        assert len(page(replace(fake_image(), clock=0), clock)) <= SIZE


@pytest.mark.skipif(os.geteuid() != 0, reason="owners are set")
class TestPage:
    @pytest.fixture
    def template(self, tmp_path: Path) -> Path:
        (tmp_path / "template/run/tvsnap").mkdir(parents=True)
        os.utime(tmp_path / "template/run", (1, 1))
        return tmp_path / "template"

    @pytest.fixture
    def upper(self, tmp_path: Path) -> Path:
        (tmp_path / "upper").mkdir()
        return tmp_path / "upper"

    def test_what_it_says(self, template: Path, upper: Path) -> None:
        image = replace(fake_image(), clock=START, random_seed=2**64 - 1)
        write_page(upper, template, image, Clock(((10, 20), (30, 40))))
        data = (upper / "run/tvsnap/fixed").read_bytes()
        assert len(data) == SIZE
        assert struct.unpack_from("<IIQQQ4q", data) == (1, 3, 2**64 - 1, 2, 0, 10, 20, 30, 40)
        assert (upper / "run").stat().st_mtime == 1
        assert (upper / "run/tvsnap").stat().st_uid == UID_BASE

    def test_nothing_for_an_image_without(self, template: Path, upper: Path) -> None:
        write_page(upper, template, fake_image(), None)
        assert not list(upper.iterdir())

    @pytest.mark.parametrize("place", ["run", "run/tvsnap", "run/tvsnap/fixed"])
    def test_no_link_of_the_sandbox_is_followed(self, template: Path, upper: Path, tmp_path: Path, place: str) -> None:
        outside = tmp_path / "outside"
        (outside / "tvsnap").mkdir(parents=True)
        for path in ("fixed", "tvsnap/fixed"):
            (outside / path).write_text("mine")
        (upper / place).parent.mkdir(parents=True, exist_ok=True)
        (upper / place).symlink_to(outside / "fixed" if place.endswith("fixed") else outside)
        write_page(upper, template, replace(fake_image(), random_seed=1), None)
        for path in ("fixed", "tvsnap/fixed"):
            assert (outside / path).read_text() == "mine"

    def test_a_fifo_in_its_place(self, template: Path, upper: Path) -> None:
        (upper / "run/tvsnap").mkdir(parents=True)
        os.mkfifo(upper / "run/tvsnap/fixed")
        write_page(upper, template, replace(fake_image(), random_seed=1), None)
