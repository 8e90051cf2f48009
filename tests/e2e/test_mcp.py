"""`tvsnap mcp`, spoken to by the client of the package `mcp`: tools, forks, returns and differences, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client

from tvsnap import Image

TVSNAP = Path(sys.executable).with_name("tvsnap")


class Agent:
    """What an agent sees of the server's tools."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def call(self, name: str, **arguments: Any) -> str:
        """Makes a call that succeeds; returns its text."""
        result = await self.session.call_tool(name, arguments)
        assert not result.is_error, result
        return "".join(part.text for part in result.content if part.type == "text")

    async def own(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Makes a call of one of our tools; returns what it tells."""
        told: dict[str, Any] = json.loads(await self.call(f"tvsnap_{name}", **arguments))
        return told

    async def refused(self, name: str, **arguments: Any) -> str:
        """Makes a call that is refused; returns the reason."""
        result = await self.session.call_tool(name, arguments)
        assert result.is_error
        return "".join(part.text for part in result.content if part.type == "text")


@asynccontextmanager
async def agent(home: Path) -> AsyncIterator[Agent]:
    server = StdioServerParameters(
        command=str(TVSNAP), args=["--home", str(home), "mcp", "terminal", "--task", "mcp"], env=dict(os.environ)
    )
    async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        yield Agent(session)


def with_agent(home: Path, work: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with agent(home) as one:
            await work(one)

    asyncio.run(run())


def test_an_agent_forks_returns_and_compares(tvsnap_home: Path, terminal_image: Image) -> None:
    async def work(agent: Agent) -> None:
        tools = {tool.name: tool for tool in (await agent.session.list_tools()).tools}
        assert {"bash", "read_file", "tvsnap_state", "tvsnap_restore", "tvsnap_fork", "tvsnap_diff"} <= set(tools)
        assert tools["bash"].input_schema["required"] == ["command"]

        assert await agent.call("bash", command="cd /tmp; echo one >a; sleep 1000 &") == ""
        start = (await agent.own("state"))["state"]
        assert await agent.call("bash", command="echo two >a; kill %1; wait; cat a; pwd") == "two\n/tmp\n"
        assert await agent.call("bash", command="exit_status() { return 3; }; exit_status") == "(exit status 3)"

        difference = await agent.own("diff", before=start)
        (file,) = difference["files"]
        assert (file["path"], file["change"]) == ("/tmp/a", "changed")
        assert "-one\n+two\n" in file["patch"]
        assert difference["ended"] == ["sleep 1000"]

        forked = await agent.own("fork", n=2)
        assert (forked["new"], forked["rollout"], forked["rollouts"]) == (["2", "3"], "1", ["1", "2", "3"])
        await agent.own("switch", rollout="2")
        assert await agent.call("bash", command="echo three >a; cat a") == "three\n"
        await agent.own("switch", rollout="3")
        assert await agent.call("bash", command="cat a") == "two\n", "forks are each their own"

        assert (await agent.own("restore", state=start[:10]))["state"] == start
        assert await agent.call("bash", command="cat a; pgrep -x sleep | wc -l") == "one\n1\n", "with its processes"

    with_agent(tvsnap_home, work)


def test_the_answers_are_those_of_a_rollout_before(tvsnap_home: Path, terminal_image: Image) -> None:
    """What a hit shows the agent is the same; where it came from is told to the client apart."""
    seen = []

    async def work(agent: Agent) -> None:
        for command in ("echo same >/tmp/b", "cat /tmp/b; ls /none"):
            result = await agent.session.call_tool("bash", {"command": command})
            seen.append((result.content, (result.meta or {})["tvsnap/source"]))

    with_agent(tvsnap_home, work)
    with_agent(tvsnap_home, work)
    first, second = seen[:2], seen[2:]
    assert [content for content, _ in first] == [content for content, _ in second]
    assert [source for _, source in second] == ["hit", "hit"]


def test_what_is_wrong_is_told_to_the_agent_which_goes_on(tvsnap_home: Path, terminal_image: Image) -> None:
    async def work(agent: Agent) -> None:
        assert 'argument "command" is missing' in await agent.refused("bash", cmd="x")
        assert 'unknown tool "nope"' in await agent.refused("nope")
        assert "no state begins with ffff" in await agent.refused("tvsnap_restore", state="ffff")
        assert 'rollout "9" not found; have: 1' in await agent.refused("tvsnap_switch", rollout="9")
        assert "tvsnap_fork" in await agent.refused("tvsnap_fork", n=0)
        assert await agent.call("bash", command="echo on") == "on\n"

    with_agent(tvsnap_home, work)
