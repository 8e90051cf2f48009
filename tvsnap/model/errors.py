"""The exceptions that tvsnap raises; each knows the exit status that the command line gives it."""

from __future__ import annotations


class TvsnapError(Exception):
    """Base of every error that tvsnap raises on purpose.

    The message names the thing, the reason and the way out, in one line.
    """

    exit_status = 1


class UsageError(TvsnapError):
    """The caller asked for something that makes no sense (a bad argument, an unknown tool)."""

    exit_status = 2


class NotFound(TvsnapError):
    """No such image, state, snapshot or task, or a prefix that names several."""

    exit_status = 3


class MachineLacks(TvsnapError):
    """This machine lacks a thing that is needed (CRIU, btrfs, rights); `tvsnap doctor` tells more."""

    exit_status = 5


class InfrastructureError(TvsnapError):
    """tvsnap itself, not the agent's command, failed. Never returned as output, never recorded."""


class SandboxDied(InfrastructureError):
    """The sandbox ended or stopped answering while it was in use."""


class SandboxRefused(InfrastructureError):
    """The sandbox lives, but could not do what was asked of it: its limits leave no room for another process, say."""


class NotCheckpointable(InfrastructureError):
    """What the sandbox holds cannot be checkpointed as it stands; it lives on. The message is the reason in words.

    As far as can be told: a reason that is none of the known ones was the same several times in a row. So whoever keeps
    it in mind forgets it after a while.
    """


class CheckpointFailed(InfrastructureError):
    """The machine, not what the sandbox holds, kept it from being checkpointed, several times in a row; it lives on.

    It says nothing of the state: once the machine has less to do, or more room, it succeeds.
    """


class StateLost(InfrastructureError):
    """A state can no longer be reached: what kept it is gone, and making its calls again does not lead back to it.

    A rollout that stands there cannot go on; begin it anew. Nothing else would be its own past.
    """


class SnapshotUnusable(InfrastructureError):
    """A snapshot is known to be missing, incomplete or damaged, or of another version of tvsnap; it may be deleted."""


class NotRestorable(InfrastructureError):
    """A snapshot is as it was taken, yet cannot be brought back here, for the same reason several times in a row.

    It is kept: another machine, or another version of CRIU, may bring it back.
    """


class ForkFailed(InfrastructureError):
    """The machine, not the snapshot, kept it from being forked, several times in a row; later it succeeds."""
