"""Requests that are done once: which answers are kept."""

from __future__ import annotations

import asyncio

import pytest

from tvsnap.plugins.client.wire.errors import KeyReused
from tvsnap.plugins.server.once import Once


def test_answers_are_kept_until_they_have_come() -> None:
    async def go() -> None:
        once: Once[str] = Once(2)
        done = []

        async def ask(key: str) -> str:
            async def work() -> str:
                done.append(key)
                return f"answer to {key}"

            return await once.do(key, 1, work)

        for key in "abc":
            await ask(key)
        with pytest.raises(KeyReused, match="not kept any more"):
            await ask("a")
        once.acknowledge([""])
        for key in "defghi":
            await ask(key)
            once.acknowledge([key] if key != "e" else [])
        assert [await ask(key) for key in "bce"] == ["answer to b", "answer to c", "answer to e"]
        with pytest.raises(KeyReused, match="not kept any more"):
            await ask("f")
        assert done == list("abcdefghi")

    asyncio.run(go())
