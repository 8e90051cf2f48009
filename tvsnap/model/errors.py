"""The exceptions that tvsnap raises, each with the exit status that the command line gives it."""

from __future__ import annotations


class TvsnapError(Exception):
    """The base of every error that tvsnap raises on purpose.

    The message is one line, which names the thing, the reason and a remedy.

    Attributes:
        exit_status: the exit status with which the command line ends after such an error.
    """

    exit_status = 1


class UsageError(TvsnapError):
    """The caller asked for something that makes no sense, such as a wrong argument or an unknown tool."""

    exit_status = 2


class Forbidden(UsageError):
    """A server knows the token as that of a tenant, and this needs one that may see all."""


class NotFound(TvsnapError):
    """There is no such image, state, snapshot or task, or a prefix fits several of them."""

    exit_status = 3


class MachineLacks(TvsnapError):
    """This machine lacks something that is needed, such as CRIU, btrfs or rights; `tvsnap doctor` tells more."""

    exit_status = 5


class InfrastructureError(TvsnapError):
    """tvsnap itself failed, not the agent's command.

    Such a failure is never returned as a tool's output and never recorded. The call may be made again.
    """


class NoRoom(InfrastructureError):
    """The host itself found too little room on a disk; a message from a sandbox never causes this error."""


class SandboxDied(InfrastructureError):
    """The sandbox ended or stopped answering while it was in use.

    The message gives the reason as far as this machine knows it: a lack of memory, and by whose limit, or an event
    outside.
    """


class SandboxRefused(InfrastructureError):
    """The sandbox lives, but refused a request, for example because it has too many processes."""


class DependencyFailed(InfrastructureError):
    """A service outside of the sandbox that a tool needs, such as a model, failed; an environment's tools raise this.

    The rollout keeps its sandbox if the tool is read-only.
    """


class NotCheckpointable(InfrastructureError):
    """A snapshot of the sandbox in its present state cannot be taken; the sandbox lives on.

    The message is the reason in words. A reason that tvsnap does not know was the same several times in a row, and is
    forgotten after a while, since the machine may have caused it nevertheless.
    """


class CheckpointFailed(InfrastructureError):
    """A snapshot could not be taken, several times in a row, for a reason that lies in the machine.

    The sandbox lives on. This says nothing about the state: a snapshot of it can succeed once the machine has less
    load, or more room.
    """


class StateLost(InfrastructureError):
    """A state can no longer be reached: it has no snapshot any more, and making its calls again does not lead to it.

    A rollout that stands there cannot go on and has to be started again: another state could contradict the results
    that it has seen.
    """


class SnapshotUnusable(InfrastructureError):
    """A snapshot is known to be missing, incomplete or damaged, or of another version of tvsnap; it may be deleted."""


class NotRestorable(InfrastructureError):
    """A sound snapshot cannot be forked on this machine, for the same reason several times in a row.

    The snapshot is kept: another machine, or another version of CRIU, may be able to fork it.
    """


class ForkFailed(InfrastructureError):
    """A snapshot could not be forked for a reason that lies in the machine, several times in a row.

    This says nothing about the snapshot: a fork of it can succeed later.
    """


class CallCancelled(TvsnapError):
    """A call was cancelled before it was executed. The rollout stands where it stood; the call may be made again."""


class GradingFailed(TvsnapError):
    """A verifier failed, so that there is no grade: it ended with a status other than 0, or said nothing usable.

    Nothing is recorded, and the rollout stands where it stood.
    """
