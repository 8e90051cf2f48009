"""Gives the files that a repeated call has written the times that they had when the call was recorded.

The names of states do not depend on times. So if a recorded call is executed once more and comes to the same state, the
files that it has written would have other times than those of other rollouts in that state, and than those that answers
have shown: answers about times would not agree. And calls that are replayed to rebuild a state follow one another at
once, so that the files of one call are no older than those of the next (`tvsnap.sandboxes.file_times`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tvsnap.sandboxes.protocol import Sandbox


def agree_on_times(sandbox: Sandbox, recorded: Mapping[str, int] | None, own: Mapping[str, int] | None = None) -> bool:
    """Sets the times of files that a call has just written to those of its record.

    Args:
        sandbox: the sandbox in which the call was executed.
        recorded: the times by path, see `Sandbox.file_times`; None if they are not known.
        own: the times that the files have now, if they are known.

    Returns:
        Whether there was something to set.

    Raises:
        InfrastructureError: it could not be done.
    """
    if not recorded or recorded == own:
        return False
    sandbox.set_file_times(recorded)
    return True
