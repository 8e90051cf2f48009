"""The conformance suite for environments: tools are described, and return the same with the cache and without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tvsnap.cache import Cache
from tvsnap.environments.base import Environment
from tvsnap.host.home import resolve_home
from tvsnap.images import ImageStore
from tvsnap.model.calls import ToolCall, ToolResult
from tvsnap.model.errors import NotFound, UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import Budget, Limits
from tvsnap.rollout import Rollout

History = Sequence[tuple[str, Mapping[str, Any]]]
"""Calls of one rollout, in order: the tool's name and its arguments."""


class EnvironmentConformance:
    """A suite for one environment: derive a class whose name begins with `Test`, and set its attributes.

    The results of its tools in the histories may not depend on chance or the clock, unless the tools declare it.

    Attributes:
        environment: the environment.
        histories: calls of rollouts, for trials with and without the cache; at least one call of each tool.
        source: the image of rollouts: the name of one that you have built, or that comes with tvsnap; or a folder to
            build.
        backend: the name of a backend, or `package.module:attribute`.
        timeout: seconds for each call.
    """

    environment: ClassVar[Environment]
    histories: ClassVar[Sequence[History]]
    source: ClassVar[str | Path] = "terminal"
    backend: ClassVar[str] = "local"
    timeout: ClassVar[float] = 60.0

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The data directory of the test; override it for an existing one."""
        return tmp_path_factory.mktemp("tvsnap-testing")

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, home: Path) -> Image:
        """The image of rollouts: that of your data directory (TVSNAP_HOME) if it has one of that name.

        Otherwise it is built in `home`, which takes a minute for one that comes with tvsnap.
        """
        try:
            image = ImageStore(resolve_home()).get(str(cls.source))
        except NotFound:
            image = ImageStore(home).build(cls.source)
        return replace(image, environment=cls.environment.name)

    @pytest.fixture
    def cache(self, home: Path, request: pytest.FixtureRequest) -> Iterator[Cache]:
        """A cache that snapshots every state, and keeps no sandbox for later: each rollout has to be forked."""
        with self._opened(home, policy="eager", budget=Budget(parked=0), prefork=0) as cache:
            yield cache

    def test_each_tool_is_described(self) -> None:
        """Name, description and a JSON schema, which describes every argument."""
        import jsonschema

        for name, tool in self.environment.tools.items():
            assert tool.name == name
            assert tool.description, f"{name} has no description"
            jsonschema.Draft202012Validator.check_schema(tool.parameters)
            assert tool.parameters["type"] == "object"
            json.dumps(tool.parameters)

    def test_each_tool_is_called(self) -> None:
        """The histories leave no tool out."""
        called = {name for history in self.histories for name, _ in history}
        assert called >= set(self.environment.tools), "the histories call not every tool"

    def test_what_is_no_call_is_refused(self) -> None:
        """An unknown tool and unknown arguments are errors that name the known ones."""
        tools = self.environment.tools
        with pytest.raises(UsageError) as unknown:
            self.environment.tool(ToolCall("no such tool", {}))
        assert all(name in str(unknown.value) for name in tools)
        for name in tools:
            with pytest.raises(UsageError, match=name):
                self.environment.tool(ToolCall(name, {"no such argument": 1}))

    def test_the_behaviour_of_limits_is_said_in_json(self) -> None:
        """Equal limits give equal texts, and those are JSON objects of fields of `Limits`."""
        text = self.environment.behaviour(Limits())
        assert text == self.environment.behaviour(Limits())
        assert set(json.loads(text)) <= set(Limits.__dataclass_fields__)

    def test_cached_equals_fresh(self, cache: Cache, home: Path, image: Image, request: pytest.FixtureRequest) -> None:
        """A history returns the same without the cache, with it, and answered from it."""
        for number, history in enumerate(self.histories):
            with self._opened(home, use_cache=False, same_ids=True) as plain, plain.rollout(image) as rollout:
                fresh = self._run(rollout, history)
            runs: list[list[ToolResult]] = []
            for _ in range(2):
                with cache.rollout(image, salt=self._salt(request, number)) as rollout:
                    runs.append(self._run(rollout, history))
            for index, (name, arguments) in enumerate(history):
                call = f"call {index}: {name} {arguments}"
                for results in runs:
                    assert results[index].parts == fresh[index].parts, call
                    assert results[index].same_value(fresh[index]), call
            if not self._is_private(history[0][0]):
                assert runs[1][0].source == "hit", "what was recorded did not answer the same call"

    def test_a_fork_goes_on_as_its_past_does(self, cache: Cache, image: Image, request: pytest.FixtureRequest) -> None:
        """From each state of a history, a fork makes the rest of it, and returns the same."""
        for number, history in enumerate(self.histories):
            if any(self._is_private(name) for name, _ in history):
                continue
            salt = self._salt(request, number)
            states = []
            with cache.rollout(image, salt=salt) as rollout:
                whole = []
                for name, arguments in history:
                    states.append(rollout.state)
                    whole.append(rollout.call(name, arguments, self.timeout))
            for index, state in enumerate(states):
                with cache.materialise(state) as sandbox:
                    for (name, arguments), before in list(zip(history, whole, strict=True))[index:]:
                        if self.environment.tools[name].on_host:
                            continue
                        call = ToolCall(name, arguments)
                        self.environment.tool(call)
                        result = self.environment.execute(sandbox, call, self.timeout, cache.limits_for(image))
                        assert result.same_value(before), f"{name} {arguments}, in a fork after {index} calls"

    def test_a_tool_on_the_host_changes_no_state(
        self, cache: Cache, image: Image, request: pytest.FixtureRequest
    ) -> None:
        """It leads to the state in which it was called."""
        for number, history in enumerate(self.histories):
            with cache.rollout(image, salt=self._salt(request, number)) as rollout:
                for name, arguments in history:
                    before = rollout.state
                    rollout.call(name, arguments, self.timeout)
                    if self.environment.tools[name].on_host:
                        assert rollout.state == before, f"{name} {arguments} changed the state"

    def _opened(self, home: Path, **options: Any) -> Cache:
        return Cache(home, backend=self.backend, environments=[self.environment], **options)

    def _run(self, rollout: Rollout, history: History) -> list[ToolResult]:
        return [rollout.call(name, arguments, self.timeout) for name, arguments in history]

    def _is_private(self, name: str) -> bool:
        """Returns whether the results of a tool's calls are shared with nobody, or not for ever."""
        tool = self.environment.tools[name]
        return tool.stochastic or not tool.cacheable or tool.time_to_live is not None

    def _salt(self, request: pytest.FixtureRequest, number: int) -> str:
        return f"{type(self).__module__}.{request.node.name} {number}"
