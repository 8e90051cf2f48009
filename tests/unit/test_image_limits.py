"""Limits that an image asks for: they hold where the caller of the cache gives none, and a root remembers them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.backend import FakeSandbox
from tests.fakes.caches import IMAGE, backend_of, bash, open_cache
from tvsnap.images import Image
from tvsnap.model.errors import TvsnapError
from tvsnap.model.images import FORMAT, MANIFEST, ImageLimits, Manifest, Timeouts
from tvsnap.model.limits import MIB, Limits

BIG = replace(IMAGE, digest="b" * 64, limits=ImageLimits(memory=4096 * MIB, cpus=1.5))


def limits_of_a_sandbox(home: Path, image: Image, limits: Limits | None = None) -> Limits:
    with open_cache(home, limits=limits) as cache, cache.rollout(image) as rollout:
        bash(rollout, "echo 1 > f")
        sandbox = rollout.sandbox()
        assert isinstance(sandbox, FakeSandbox)
        assert backend_of(cache).counts["start"] == 1
        return sandbox.limits


def test_an_images_limits_apply_where_the_caller_gives_none(tmp_path: Path) -> None:
    assert limits_of_a_sandbox(tmp_path / "a", IMAGE) == Limits()
    assert limits_of_a_sandbox(tmp_path / "b", BIG) == Limits(memory=4096 * MIB, cpus=1.5)
    own = Limits(memory=64 * MIB)
    assert limits_of_a_sandbox(tmp_path / "c", BIG, own) == own


def test_a_root_remembers_the_limits_that_it_began_with(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        assert cache.limits is None
        with cache.rollout(BIG) as rollout:
            bash(rollout, "echo 1 > f")
            state = rollout.state
        assert [json.loads(root.limits)["memory"] for root in cache.graph.roots()] == [4096 * MIB]
        with cache.rollout(IMAGE) as other:
            assert other.root != rollout.root
        with cache.materialise(state) as sandbox:
            assert isinstance(sandbox, FakeSandbox)
            assert sandbox.limits == Limits(memory=4096 * MIB, cpus=1.5)


VALUES = {
    "format": FORMAT,
    "name": "old",
    "digest": "0" * 64,
    "recipe": "1" * 64,
    "environment": "terminal",
    "env": {},
    "workdir": "/",
    "user": "root",
    "hostname": "sandbox",
    "size": 1,
    "created": 2.0,
    "source": "/old",
    "build_seconds": 3.0,
}


class TestManifest:
    """What image.json keeps of it."""

    def test_manifests_of_earlier_versions_ask_for_nothing(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text(json.dumps(VALUES))
        manifest = Manifest.read(tmp_path)
        assert (manifest.limits, manifest.timeouts, manifest.notes) == (ImageLimits(), Timeouts(), ())
        assert not manifest.no_new_privileges  # their sandboxes were recorded without

    def test_round_trip(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text(json.dumps(VALUES))
        manifest = replace(
            Manifest.read(tmp_path),
            limits=ImageLimits(memory=1, processes=2, cpus=0.5),
            timeouts=Timeouts(agent=900.0),
            notes=("a", "b"),
        )
        manifest.write(tmp_path)
        assert Manifest.read(tmp_path) == manifest
        image = manifest.image(tmp_path, "old")
        assert (image.limits.said(), image.timeouts.said()) == (
            {"memory": 1, "processes": 2, "cpus": 0.5},
            {"agent": 900.0},
        )

    def test_what_is_missing_otherwise_is_damage(self, tmp_path: Path) -> None:
        (tmp_path / MANIFEST).write_text(json.dumps({**VALUES, "limits": {"memroy": 1}}))
        with pytest.raises(TvsnapError, match="is damaged"):
            Manifest.read(tmp_path)
