"""Takes snapshots of containers: in which way, and in which order, so that all parts are of one moment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tvsnap.host import attempts
from tvsnap.model.errors import CheckpointFailed, NotCheckpointable
from tvsnap.model.observations import Captures, SnapshotInfo
from tvsnap.plugins.docker.containers import Containers
from tvsnap.plugins.docker.engine import Engine
from tvsnap.plugins.docker.layers import flattened
from tvsnap.plugins.docker.notes import note_lent
from tvsnap.plugins.docker.sandbox import DockerSandbox
from tvsnap.plugins.docker.snapshot_store import CRIU, SHELL, Manifest, SnapshotStore, Unfinished
from tvsnap.sandboxes.criu import fidelity, interrupted_calls
from tvsnap.sandboxes.criu.excess import refuse_excess
from tvsnap.sandboxes.kernel import allowance
from tvsnap.sandboxes.looks import activity
from tvsnap.sandboxes.repairs import directory_times
from tvsnap.sandboxes.shell import image as shell_image

PAUSES = (0.05, 0.2)
"""Seconds between the attempts at a checkpoint: few, because the next call there waits for the last of them."""
MAX_DEPTH = 100  # layers of an image; beyond that all its files become one. Engines refuse about 125 and more


@dataclass(frozen=True, slots=True)
class Taker:
    """Takes snapshots of the sandboxes of one backend. Thread-safe.

    If only the idle shell lives, the files are committed and the shell's state is recorded: a fork is then a fresh
    container, which starts in half the time that restoring a checkpoint takes. Otherwise files and processes are taken
    while the container is paused.
    """

    engine: Engine
    containers: Containers
    snapshots: SnapshotStore
    guest: str  # version of the PID 1 in its sandboxes

    def take(self, sandbox: DockerSandbox) -> SnapshotInfo:
        """See `Sandbox.checkpoint`; `ProcessesDisturbed` means that the sandbox must not go on."""
        return attempts.repeat(lambda: self._take(sandbox), PAUSES, lasting=NotCheckpointable, passing=CheckpointFailed)

    def _take(self, sandbox: DockerSandbox) -> SnapshotInfo:
        began = time.perf_counter()
        table = sandbox.process_table()
        others = tuple(one.command for one in table.others)
        refusal = f"live processes: {', '.join(others)}" if others else ""
        if not others:
            try:
                shell = shell_image.capture(
                    sandbox.guest(),
                    others=(),
                    hold=sandbox.shell_hold,
                    numbered=sandbox.files.outside() is not None,
                )
                if not sandbox.holds_nothing_in_memory:
                    raise NotCheckpointable("there are files of its own in /dev or /dev/shm, which no commit holds")
                if not sandbox.starts_shells_as_before:
                    raise NotCheckpointable("/etc/bash.bashrc was changed, which a fresh shell reads")
                return self._take_idle(sandbox, shell, began)
            except NotCheckpointable as reason:
                refusal = str(reason)
        stopped = [one.command for one in table.others if one.state in "Tt"]
        if stopped:
            # When CRIU seizes a stopped process, it must run for a moment; paused, it cannot, and both would wait
            # forever.
            raise NotCheckpointable(f"stopped jobs cannot be checkpointed in a container: {', '.join(stopped)}")
        lack = self.containers.no_checkpoints
        if lack:
            raise NotCheckpointable(f"{refusal}; {lack}")
        return self._take_live(sandbox, others, began)

    def _take_idle(self, sandbox: DockerSandbox, shell: shell_image.ShellImage, began: float) -> SnapshotInfo:
        sandbox.end_connections()
        with self.snapshots.taking() as unfinished:
            self._note_lent(sandbox, unfinished)
            depth, size = self._commit(sandbox, unfinished)
            closed = sandbox.note_closed()
            (unfinished.directory / SHELL).write_bytes(shell.to_bytes())
            info = SnapshotInfo(
                unfinished.id, Captures(shell=True), size, time.perf_counter() - began, frozen=0.0, processes=()
            )
            clock = sandbox.clock.stop() if sandbox.clock else None
            about = Manifest(info, self.guest, depth, True, sandbox.changes_settled, closed, clock)
            self.snapshots.complete(unfinished, about)
        return info

    def _take_live(self, sandbox: DockerSandbox, processes: tuple[str, ...], began: float) -> SnapshotInfo:
        with self.snapshots.taking() as unfinished:
            self._note_lent(sandbox, unfinished)
            empty_memory = sandbox.holds_nothing_in_memory
            init_here = sandbox.files.outside()  # in this machine's /proc
            if init_here and (waits := interrupted_calls.find(activity.family(int(init_here.name)))):
                raise attempts.AttemptFailed(waits)
            sandbox.end_connections()
            frozen = time.perf_counter()
            with self.containers.paused(sandbox.container):
                init, pids = self.containers.processes(sandbox.container)
                refuse_excess(pids, init, sandbox.limits)
                fidelity.refuse_loss(pids, init)
                directories = tuple(directory_times.note(pids, init))
                closed = sandbox.note_closed()
                clock = sandbox.clock.stop() if sandbox.clock else None
                self.containers.checkpoint(sandbox.container, unfinished.directory / CRIU)
                depth, size = self._commit(sandbox, unfinished)
            now = time.perf_counter()
            images = _sizes(unfinished.directory / CRIU)
            info = SnapshotInfo(
                unfinished.id,
                Captures(processes=True, shell=True),
                size + sum(images.values()),
                now - began,
                now - frozen,
                processes,
            )
            changes = sandbox.changes_settled
            about = Manifest(info, self.guest, depth, empty_memory, changes, closed, clock, directories)
            self.snapshots.complete(unfinished, about)
        return info

    @staticmethod
    def _note_lent(sandbox: DockerSandbox, unfinished: Unfinished) -> None:
        if changed := sandbox.changed_lent_files():
            note_lent(sandbox.guest(), changed, unfinished.directory)

    def _commit(self, sandbox: DockerSandbox, unfinished: Unfinished) -> tuple[int, int]:
        """Makes the engine's image of a sandbox's files; returns the number of its layers, and of its new bytes."""
        depth = sandbox.depth + 1
        if depth <= MAX_DEPTH:
            sandbox.files.distinguish(unfinished)
            with allowance.uncounted():
                self.snapshots.commit(unfinished, sandbox.container, sandbox.image.digest)
            sandbox.files.mend(unfinished)
            return depth, self._size(unfinished.reference) - self._size(sandbox.reference)
        export = self.containers.export(sandbox.container)
        with flattened(export, sandbox.files.all()) as stream, allowance.uncounted():
            self.snapshots.put(unfinished, stream, sandbox.image.digest)
        return 1, self._size(unfinished.reference)

    def _size(self, reference: str) -> int:
        return int(self.engine.image(reference)["Size"])


def _sizes(directory: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_size for entry in os.scandir(directory) if entry.is_file()}
