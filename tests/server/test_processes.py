"""Clients in processes that are forked off, and in several event loops."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable

import pytest

import tvsnap
import tvsnap.aio
from tests.server.conftest import Server
from tvsnap.model.errors import InfrastructureError
from tvsnap.plugins.harnesses.caches import CacheOptions, process_cache


def in_child(work: Callable[[], str]) -> str:
    """Returns what `work` returns in a process that is forked off, or how it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_client_is_refused_in_a_child_and_goes_on_in_its_own_process(server: Server) -> None:
    with tvsnap.connect(server.url) as client, client.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        rollout.call("bash", {"command": "cd /tmp"})

        def work() -> str:
            client.close()  # ends nothing of the parent's
            return rollout.call("bash", {"command": "echo child"}).output

        for _ in range(3):
            assert in_child(work).startswith("InfrastructureError: the client of ")
            assert "forked off" in in_child(lambda: str(client.stats()))
            assert rollout.call("bash", {"command": "pwd"}).output == "/tmp\n"


def test_a_child_opens_a_harness_s_cache_anew(server: Server) -> None:
    options = CacheOptions.chosen(None, server.url, None)
    cache = process_cache(options)

    def work() -> str:
        assert process_cache(options) is not cache
        with process_cache(options).rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            return rollout.call("bash", {"command": "echo child"}).output

    assert in_child(work) == "child\n"
    assert process_cache(options) is cache
    with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
        assert rollout.call("bash", {"command": "echo parent"}).output == "parent\n"


def test_an_awaited_client_in_one_loop_after_the_other(server: Server) -> None:
    async def opened() -> tvsnap.aio.AsyncClient:
        cache = await tvsnap.aio.connect(server.url)
        await used(cache)
        return cache

    async def used(cache: tvsnap.aio.AsyncClient) -> None:
        async with cache.rollout("terminal", salt=secrets.token_hex(4)) as rollout:
            assert (await rollout.call("bash", {"command": "echo here"})).output == "here\n"

    cache = asyncio.run(opened())
    for _ in range(2):
        asyncio.run(used(cache))
    asyncio.run(cache.close())


def test_errors_are_of_the_right_kind() -> None:
    with pytest.raises(InfrastructureError, match="does it run"):
        tvsnap.connect("http://127.0.0.1:9", patience=0)
