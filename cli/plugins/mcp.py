"""`tvsnap mcp`: serves one rollout with the Model Context Protocol."""

from __future__ import annotations

import typer
from typer import Argument, Option

from tvsnap.model.errors import UsageError

from .. import completion, context, options

POLICY = "eager"


@options.verb(
    "15",
    begins=True,
    backend=True,
    url=True,
    s0="the client closed the connection",
    s2="bad usage, or the package mcp is missing",
    s3="no such image",
)
def mcp(
    image: str = Argument(..., metavar="IMAGE", help="The image to start.", autocompletion=completion.images),
    task: str = Option("", metavar="TASK", help="The task that the rollout is of."),
    network: options.Network = None,
    timeout: float = options.seconds(120.0, "--timeout", "Seconds for each call."),
    policy: options.Policy = POLICY,
) -> None:
    """Serve the tools of a sandbox to an agent over MCP.

    MCP is the Model Context Protocol, spoken on standard input and output, for programs that start their servers
    themselves. The tools are those of the image's environment, and tvsnap_state, tvsnap_restore, tvsnap_fork,
    tvsnap_switch and tvsnap_diff. It needs the package mcp: pip install 'tvsnap[mcp]'.

    \b
    Examples:
      tvsnap mcp terminal
      tvsnap mcp terminal --task refactor --network public
      tvsnap mcp terminal --url http://sandboxes:8420
    """
    import asyncio

    try:
        from tvsnap.plugins.harnesses.mcp import Session, serve
    except ModuleNotFoundError as error:
        raise UsageError(f"the package {error.name} is missing: pip install 'tvsnap[mcp]'") from None

    async def run() -> None:
        async with context.any_async_cache(policy, POLICY) as cache:
            built = await cache.images.get(image)
            async with Session(cache, built, task, options.network(network), timeout) as session:
                await serve(session)

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        raise typer.Exit(options.INTERRUPTED) from None
