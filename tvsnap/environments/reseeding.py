"""The tool `reseed` of every environment: it gives the random number generators of a fork a seed of its own."""

from __future__ import annotations

import struct
from typing import Annotated, Protocol, runtime_checkable

from tvsnap.environments.base import Environment
from tvsnap.environments.terminal import clean
from tvsnap.environments.tools import CallContext, Tool, tool
from tvsnap.guest.protocol import FIXED, SEED
from tvsnap.model.calls import ToolResult
from tvsnap.model.operations.rollouts import RESEED
from tvsnap.sandboxes.fixed_clock import MARK
from tvsnap.sandboxes.protocol import Sandbox

_MOST = (1 << 52) - 1


@runtime_checkable
class Reseeds(Protocol):
    """An environment with sessions that have random number generators of their own."""

    def reseed(self, sandbox: Sandbox, seed: int) -> str:
        """Gives them a seed.

        Args:
            sandbox: the sandbox.
            seed: the seed, from 0 to 2**52 - 1.

        Returns:
            The reason for which it could not be done, or "".
        """
        ...


def reseeding(environment: Environment) -> Tool:
    """Returns the tool for an environment.

    Args:
        environment: the environment; its sessions are reseeded if it `Reseeds`.
    """

    @tool(name=RESEED)
    def reseed(context: CallContext, seed: Annotated[int, {"minimum": 0, "maximum": _MOST}, "the seed"]) -> ToolResult:
        """Gives the random number generators of the sandbox another seed."""
        sandbox = context.sandbox
        sandbox.write_file(SEED, str(seed).encode(), user="root")
        if sandbox.image.random_seed is not None:
            _mark(sandbox, seed)
        failures = [_reseed_shell(sandbox, seed)]
        if isinstance(environment, Reseeds):
            failures.append(environment.reseed(sandbox, seed))
        errors = "".join(f"reseed: {failure.rstrip()}\n" for failure in failures if failure)
        if not sandbox.image.reseed:
            return ToolResult.of_text(errors, int(bool(errors)), 0.0)
        outcome = sandbox.exec(sandbox.image.reseed, timeout=context.timeout)
        code = int(bool(errors)) if outcome.exit_code == 0 else outcome.exit_code
        output = errors + clean(outcome.output, truncated=outcome.truncated)
        return ToolResult.of_text(
            output, code, outcome.duration, timed_out=outcome.timed_out, truncated=outcome.truncated
        )

    return reseed


def _mark(sandbox: Sandbox, seed: int) -> None:
    """Lets processes notice that have drawn numbers from the seed of the image."""
    digits = "".join(f"\\{byte:03o}" for byte in struct.pack("<Q", seed))
    write = f"printf '{digits}' | dd of=/{FIXED} bs={MARK} seek=1 conv=notrunc status=none"
    sandbox.exec(write, cwd="/", user="root")


def _reseed_shell(sandbox: Sandbox, seed: int) -> str:
    """Reseeds the persistent shell, whose `$?` stays; returns the reason if that is not possible."""
    # The shell has expanded `$?` before it runs the text.
    outcome = sandbox.run(f'eval "RANDOM={seed % 2**32}; export TVSNAP_SEED={seed}; (exit $?)"')
    return clean(outcome.output) if outcome.exit_code is None else ""
