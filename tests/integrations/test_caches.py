"""Caches that the environments of one harness share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tvsnap import AsyncCache, Cache, Image, UsageError
from tvsnap.plugins.harnesses.caches import CacheOptions, shared_cache


def test_one_loop_has_one_cache_for_the_same_options_and_closes_it_at_its_end(tvsnap_home: Path) -> None:
    options = CacheOptions(tvsnap_home)

    async def ask() -> tuple[Cache, ...]:
        one, other = await asyncio.gather(shared_cache(options), shared_cache(options))
        without = await shared_cache(CacheOptions(tvsnap_home, use_cache=False))
        assert one is other
        assert without is not one
        assert isinstance(one, AsyncCache)
        assert isinstance(without, AsyncCache)
        assert not without.cache.use_cache
        return one.cache, without.cache

    first, second = asyncio.run(ask()), asyncio.run(ask())
    assert len({*map(id, first), *map(id, second)}) == 4
    for cache in (*first, *second):
        with pytest.raises(UsageError, match="closed"):
            cache.rollout("terminal")


def test_a_cache_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")

    async def ask() -> None:
        for _ in range(2):
            with pytest.raises(UsageError, match="is no directory"):
                await shared_cache(CacheOptions(home))
        home.unlink()
        opened = await shared_cache(CacheOptions(home))
        assert isinstance(opened, AsyncCache)
        assert opened.cache.home == home

    asyncio.run(ask())


def test_a_process_has_one_cache_for_the_same_options_and_closes_it_at_its_end(
    terminal_image: Image, tvsnap_home: Path
) -> None:
    script = f"""
import os, pathlib
from tvsnap.plugins.harnesses.caches import CacheOptions, process_cache
home = pathlib.Path({str(tvsnap_home)!r})
cache = process_cache(CacheOptions(home))
assert process_cache(CacheOptions(home)) is cache
assert process_cache(CacheOptions(home, use_cache=False)) is not cache
left = cache.rollout("terminal", salt="left at the end")
assert list(home.glob(f"run/owners/{{os.getpid()}}-*"))
print(os.getpid(), left.call("exec", {{"command": "(sleep 300 &)"}}).exit_code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pid, status = done.stdout.split()
    assert status == "0"
    assert not list(tvsnap_home.glob(f"run/owners/{pid}-*"))
