"""Runs programs of ours inside a sandbox, by its PID 1."""

from __future__ import annotations

from collections.abc import Iterator

from tvsnap.guest.protocol import INIT, Guest
from tvsnap.sandboxes.kernel import allowance
from tvsnap.sandboxes.looks import observing

TIMEOUT = 60.0  # seconds
MOST = observing.MOST_RECORDS  # bytes of output at most


def list_inside(guest: Guest, *arguments: str) -> Iterator[observing.Entry]:
    """Yields files as seen inside; arguments as for `tvsnap-init walk list`."""
    return observing.parse_entries(run_tool(guest, "walk", "list", *arguments))


def run_tool(guest: Guest, *arguments: str, user: str = "root") -> bytes:
    """Runs one of PID 1's own programs inside; returns what it printed.

    Raises:
        SandboxDied: it has ended.
        NotSeen: the program failed, or was too slow: other programs in the container may be in its way.
    """
    allowance.go_on()
    command = [INIT, "within", str(allowance.seconds()), *arguments]
    outcome = guest.execute(command, timeout=TIMEOUT, limit=MOST, user=user)
    if outcome.exit_code != 0 or outcome.truncated:
        raise allowance.NotSeen(
            f"looking into a sandbox failed ({' '.join(arguments)}): {outcome.output[-500:].decode(errors='replace')}"
        )
    return outcome.output
