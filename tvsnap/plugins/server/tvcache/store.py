"""What TVCache's server does, done with the graph and what is known of the clients' environments."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from tvsnap.graph import Edge, Graph
from tvsnap.model.errors import NotFound, TvsnapError
from tvsnap.plugins.server.places import Places
from tvsnap.plugins.server.tvcache.environments import Environment, Environments
from tvsnap.plugins.server.tvcache.records import (
    MOST_CALLS,
    TEST,
    CallPath,
    Records,
    Standing,
    check_name,
    state_after,
    text_of,
    value_of,
    walk,
)

MOST_WAITING = 64 * 1024 * 1024
"""Characters of the calls and values that wait until the calls before theirs are recorded."""
MOST_PASSED = 100
"""How many states are looked at, past calls that change nothing, to find where a call was made."""


@dataclass(frozen=True, slots=True)
class Made:
    """Calls that a client has made.

    Attributes:
        path: the calls, with those before them.
        start: how many calls of the path come before those that were made.
        values: what each returned: anything that JSON can express.
        seconds: how long each took.
        environment: the client's environment in which they were made, and which is kept; None for none.
    """

    path: CallPath
    start: int
    values: Sequence[Any]
    seconds: Sequence[float]
    environment: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """The longest part of a path that has an environment.

    Attributes:
        environment: the environment; None if there is none, as with a path that is answered as a whole.
        texts: the calls that lead to it.
        rest: the calls that remain.
    """

    environment: str | None
    texts: Sequence[str]
    rest: Sequence[str]


class Store:
    """Answers and records for TVCache's clients. Thread-safe."""

    def __init__(
        self,
        graph: Graph,
        most_environments: int,
        patience: float,
        places: Places | None = None,
        *,
        reads: bool = False,
    ) -> None:
        """
        Args:
            graph: the graph that the calls are in.
            most_environments: how many environments of a task clients keep.
            patience: seconds after which a use of an environment ends that no client gives back.
            places: which environments stand where, for all processes of a server; None where there is one.
            reads: another process knows the environments, and this one reads there where they stand.
        """
        self._records = Records(graph)
        shown = None if reads else places
        self._environments = Environments(most_environments, patience, self._records.children, shown)
        self._standing = places.standing if places is not None and reads else self._environments.standing
        self._recording = threading.Lock()
        self._waiting: dict[str, list[Made]] = {}
        self._waiting_size = 0
        self._stateless: dict[str, dict[str, str]] = defaultdict(dict)

    def get(self, path: CallPath) -> tuple[Edge | None, str | None]:
        """Returns the record that answers the last call of a path, and the environment that stands where it leads.

        Raises:
            NotKnown: another process has to be asked for the environment.
        """
        edge = self._records.answer(path)
        if edge is None:
            return None, None
        standing = self._standing(path.end)
        self._records.count_hit(edge, path.task)
        return edge, standing

    def put(self, several: Sequence[Made]) -> list[list[str] | TvsnapError]:
        """Records calls in one transaction, and notes where the environments stand in which they were made.

        Calls before which others are missing wait until those are recorded: clients send records in the background.

        Args:
            several: calls of one client each, one after the other.

        Returns:
            Of each, the environments that the task's clients may end; or the error because of which it is not recorded.

        Raises:
            TvsnapError: none is recorded.
        """
        noted: list[Callable[[], None]] = []
        with self._recording:
            with self._records.together():
                errors = [self._try_to_put(calls, noted) for calls in several]
            for note in noted:
                note()
        return [
            self._environments.take_ended(calls.path.task) if error is None else error
            for calls, error in zip(several, errors, strict=True)
        ]

    def prefix_match(self, path: CallPath) -> Found | None:
        """Returns the longest part of a path that has an environment, and begins a use of that; None if there is none.

        Args:
            path: the calls.
        """
        for number, environment in self._environments.candidates(path.states):
            environment_id = self._take(path.states[number], environment)
            if environment_id is not None:
                return Found(environment_id, path.texts[:number], path.texts[number:])
        return None

    def match_around(self, path: CallPath) -> Found | None:
        """Returns the same as `prefix_match`, of a path that may have further calls, known to change nothing.

        Returns:
            None if no part of the path has an environment. If all of it is answered, its calls, and none that remain.
        """
        states, texts = [path.states[0]], list[str]()
        covered = [0]  # how many of the calls asked for lead to each of the states
        for number, text in enumerate(path.texts, 1):
            steps = self._steps(states[-1], text)
            if steps is None or len(texts) + len(steps) > MOST_CALLS:
                break
            for step in steps:
                texts.append(step)
                states.append(state_after(states[-1], step))
                covered.append(number - 1)
            covered[-1] = number
        if path.texts and covered[-1] == len(path.texts):
            return Found(self.get(CallPath(path.task, texts))[1], texts, ())
        for number, environment in self._environments.candidates(states):
            environment_id = self._take(states[number], environment)
            if environment_id is not None:
                return Found(environment_id, texts[:number], path.texts[covered[number] :])
        return None

    def should_fork(self, path: CallPath) -> str | None:
        """Returns the environment where a path ends, which is to be forked; None if there is none."""
        if not self._records.is_answered(path.end):
            return None
        return self._environments.to_fork(path.end)

    def can_extend(self, path: CallPath, suffix: Sequence[str]) -> tuple[bool, Sequence[str]]:
        """Gives the right to execute calls in the environment where a path ends, or in a fresh one where it is empty.

        Returns:
            Whether the right is given; and the calls of `suffix` if it is, or if somebody else is making just these
            calls, so that their answer can be waited for, else none.
        """
        whole = CallPath(path.task, (*path.texts, *suffix))
        standing = self._records.standing(whole)
        if standing is Standing.VARYING:
            return False, ()
        if standing is Standing.ANSWERED or self._environments.is_leased(whole.end):
            return False, suffix
        if path.texts and not self._records.is_answered(path.end):
            return False, ()
        granted = self._environments.lease(path.end if path.texts else None, whole.end)
        return granted, suffix if granted else ()

    def release(self, environment: str) -> None:
        """Ends a use of an environment."""
        self._environments.release(environment)

    def hold_all(self, task: str) -> list[str]:
        """Begins a use of each environment of a task; returns them."""
        return self._environments.hold_all(check_name(task, "task_name"))

    def is_as_left(self, environment: str) -> bool:
        """Returns whether an environment stands where its maker left it; see `Environments.is_as_left`."""
        return self._environments.is_as_left(environment)

    def mark_stateless(self, path: CallPath, environment: str) -> bool:
        """Notes that the last call of a path changed nothing, if an environment stands where it led."""
        there = self._environments.at(path.end)
        if not path.texts or there is None or there.id != environment or not self._records.is_answered(path.end):
            return False
        self._stateless[path.states[-2]][path.texts[-1]] = path.end
        return True

    def store_test_result(self, path: CallPath, result: str) -> bool:
        """Records what a test found where a path ends; returns whether it is recorded."""
        tested = CallPath(path.task, (*path.texts, TEST))
        with self._recording, self._records.together():
            self._put(Made(tested, len(path.texts), [result], [0.0], None), [])  # of no environment
        self._environments.end_lease(tested.end)
        return self._records.standing(tested) is Standing.ANSWERED

    def test_result(self, path: CallPath) -> str | None:
        """Returns what a test found where a path ends; None if there was none, or tests there differ."""
        edge = self._records.answer(CallPath(path.task, (*path.texts, TEST)))
        if edge is None:
            return None
        self._records.count_hit(edge, path.task)
        return str(value_of(edge))

    def remove(self, path: CallPath) -> bool:
        """Deletes the calls of a path as far as nothing else follows from them; returns whether any were deleted."""
        gone = self._records.remove(path)
        self._environments.leave(gone)
        return bool(gone)

    def hot_nodes(self, k: int) -> dict[str, list[list[str]]]:
        """Returns the paths, by task, to the states in which more than `k` calls that changed something were made."""
        calls = self._records.calls()
        return {
            task: [
                list(texts)
                for texts, _, here in walk(root.hash, calls)
                if texts and sum(edge.changed for edge in here) > k
            ]
            for task, root in self._records.tasks().items()
        }

    def tree(self, task: str | None = None) -> Iterator[str]:
        """Returns the calls of all tasks, or of one, nested as their states are, in pieces of JSON.

        Raises:
            NotFound: nothing was recorded of the task.
        """
        roots = self._records.tasks()
        if task is not None:
            if task not in roots:
                raise NotFound(f"nothing was recorded of the task {task!r}; /api/runs lists the tasks")
            roots = {task: roots[task]}
        return self._nested({name: (root.hash, root.created) for name, root in roots.items()})

    def _nested(self, roots: dict[str, tuple[str, float]]) -> Iterator[str]:
        # Without recursion, as histories may be longer than Python's stack is deep.
        calls = self._records.calls()
        stack: list[str | tuple[str, str, Edge | None, float]] = ["}"]
        for number, (task, (state, created)) in enumerate(reversed(roots.items())):
            stack += ["," if number else "", (task, state, None, created)]
        yield "{"
        while stack:
            top = stack.pop()
            if isinstance(top, str):
                yield top
                continue
            name, state, edge, created = top
            here = calls.get(state, [])
            test = next((str(value_of(one)) for one in here if text_of(one) == TEST), None)
            fields = json.dumps(self._fields(state, edge, created, test))
            yield f'{json.dumps(name)}: {fields[:-1]}, "children": {{'
            stack.append("}}")
            below = [one for one in here if one.changed]
            for number, one in enumerate(reversed(below)):
                stack += ["," if number else "", (text_of(one), one.next_state, one, one.created)]

    def _fields(self, state: str, edge: Edge | None, created: float, test: str | None) -> dict[str, Any]:
        there = self._environments.at(state)
        stateless = edge is not None and text_of(edge) in self._stateless.get(edge.state, {})
        return {
            "env_id": None if there is None else there.id,
            "value": None if edge is None else value_of(edge),
            "tool_exec_time": None if edge is None else edge.result.duration,
            "init_time": int(created),
            "ttl": None,
            "test_result": test,
            "cache_hits": 0 if edge is None else edge.hits,
            "prefix_hits": 0 if there is None else there.given,
            "stateless": stateless,
        }

    def runs(self) -> list[dict[str, Any]]:
        """Returns the tasks, as TVCache's page of saved runs lists files."""
        return [
            {
                "path": task,
                "display_name": task,
                "task_count": 1,
                "file_size": 0,
                "modified": root.created,
                "modified_date": datetime.fromtimestamp(root.created).strftime("%Y-%m-%d %H:%M"),
            }
            for task, root in sorted(self._records.tasks().items(), key=lambda item: -item[1].created)
        ]

    def _take(self, state: str, environment: Environment) -> str | None:
        """Begins a use of an environment, unless what leads to its state is not answered any more."""
        if not self._records.is_answered(state):
            self._environments.leave([state])
            return None
        return environment.id if self._environments.hold(environment) else None

    def _steps(self, state: str, text: str) -> list[str] | None:
        """Returns the calls that lead from a state to a call that is answered, past calls that change nothing.

        They end with that call. None if there are none.
        """
        reached: list[tuple[str, list[str]]] = [(state, [])]
        for at, passed in reached:
            if self._records.of_call(at, text) is Standing.ANSWERED:
                return [*passed, text]
            for further, after in list(self._stateless.get(at, {}).items()):
                if len(reached) < MOST_PASSED and self._records.of_call(at, further) is Standing.ANSWERED:
                    reached.append((after, [*passed, further]))
        return None

    def _try_to_put(self, calls: Made, noted: list[Callable[[], None]]) -> TvsnapError | None:
        """Does what `_put` does; returns its error."""
        try:
            self._put(calls, noted)
        except TvsnapError as error:
            return error
        return None

    def _put(self, calls: Made, noted: list[Callable[[], None]]) -> None:
        """Records calls; what is known of environments then is added to `noted`."""
        path, start = calls.path, calls.start
        if not start or self._records.is_answered(path.states[start]):
            self._record(calls, noted)
        elif self._records.standing(path, start) is Standing.UNKNOWN:
            self._wait(calls, noted)
        elif calls.environment is not None:
            noted.append(partial(self._environments.give_up, path.task, calls.environment))

    def _record(self, calls: Made, noted: list[Callable[[], None]]) -> None:
        """Records calls whose predecessors are recorded, and then those that have waited for them."""
        due = [calls]
        while due:
            calls = due.pop()
            path, end = calls.path, calls.start + len(calls.values)
            try:
                end_recorded = self._records.record(path, calls.start, calls.values, calls.seconds)
            except NotFound:  # what leads there was removed meanwhile
                end_recorded = calls.start
            if calls.environment is not None:
                if end_recorded == end == len(path.texts):
                    noted.append(partial(self._environments.put, path.task, path.end, calls.environment))
                else:
                    noted.append(partial(self._environments.give_up, path.task, calls.environment))
            if self._waiting:
                for state in path.states[calls.start + 1 : end_recorded + 1]:
                    for one in self._waiting.pop(state, ()):
                        self._waiting_size -= _size(one)
                        due.append(one)

    def _wait(self, calls: Made, noted: list[Callable[[], None]]) -> None:
        self._waiting.setdefault(calls.path.states[calls.start], []).append(calls)
        self._waiting_size += _size(calls)
        while self._waiting_size > MOST_WAITING:
            for one in self._waiting.pop(next(iter(self._waiting))):
                self._waiting_size -= _size(one)
                if one.environment is not None:
                    noted.append(partial(self._environments.give_up, one.path.task, one.environment))


def _size(calls: Made) -> int:
    values = sum(len(value if isinstance(value, str) else json.dumps(value)) for value in calls.values)
    return values + sum(len(text) + 128 for text in calls.path.texts)
