"""What is elsewhere, or is awaited, is used as what is here: it has the same methods with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields

import pytest

from tvsnap.aio.cache import AsyncCache
from tvsnap.aio.images import AsyncImageStore
from tvsnap.aio.rollout import AsyncRollout
from tvsnap.aio.sandbox import AsyncSandbox
from tvsnap.cache import Cache
from tvsnap.engine.settings import CacheArguments, CacheSettings
from tvsnap.graph import Graph
from tvsnap.images import ImageStore
from tvsnap.model.forks import AsyncForks, Forks
from tvsnap.plugins.client.async_client import (
    AsyncClient,
    AsyncRemoteImages,
    AsyncRemoteRollout,
    AsyncRemoteSandbox,
)
from tvsnap.plugins.client.client import Client, RemoteRollout, RemoteSandbox
from tvsnap.plugins.client.images_and_graph import RemoteGraph, RemoteImages
from tvsnap.rollout import Rollout
from tvsnap.sandboxes.protocol import Sandbox

LACKS = [
    (Cache, Client, {"trouble"}),
    (Rollout, RemoteRollout, set()),
    (AsyncCache, AsyncClient, {"trouble"}),
    (
        *(AsyncRollout, AsyncRemoteRollout),
        {"answer_to", "has_sandbox", "in_order", "is_settled", "of", "place", "rollout", "try_hit", "where"},
    ),
    (
        *(AsyncSandbox, AsyncRemoteSandbox),
        {"archive", "memory", "observe"},
    ),
]
"""What is here, what is elsewhere, and what the latter lacks."""
PAIRS = [
    *((here, elsewhere) for here, elsewhere, _ in LACKS),
    (Sandbox, RemoteSandbox),
    (Graph, RemoteGraph),
    (ImageStore, RemoteImages),
    (AsyncImageStore, AsyncRemoteImages),
]
ADDED = {
    "Client": {"check", "diff", "events", "figures", "forget", "graph", "terminal"},
    "AsyncClient": {"events", "terminal"},
    "AsyncRemoteSandbox": {"attach"},
}
"""What those elsewhere have beside the methods of those here, or where those here have attributes."""


def _members(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(("here", "elsewhere", "lacks"), LACKS)
def test_what_is_lacking(here: type, elsewhere: type, lacks: set[str]) -> None:
    assert _members(here) - _members(elsewhere) == lacks


@pytest.mark.parametrize(("here", "elsewhere"), PAIRS)
def test_what_is_elsewhere_is_used_in_the_same_way(here: type, elsewhere: type) -> None:
    members = _members(elsewhere) - ADDED.get(elsewhere.__name__, set())
    assert members <= _members(here)
    for name in members:
        one, other = getattr(here, name), getattr(elsewhere, name)
        assert isinstance(one, property) == isinstance(other, property)
        if not isinstance(one, property):
            assert inspect.iscoroutinefunction(one) == inspect.iscoroutinefunction(other)
            assert _arguments(other).items() <= _arguments(one).items(), name


@pytest.mark.parametrize(
    ("plain", "awaited"),
    [
        *((Cache, AsyncCache), (Rollout, AsyncRollout), (Sandbox, AsyncSandbox), (Forks, AsyncForks)),
        (ImageStore, AsyncImageStore),
    ],
)
def test_what_is_awaited_has_the_same_arguments(plain: type, awaited: type) -> None:
    for name in _members(plain) & _members(awaited):
        if not isinstance(getattr(plain, name), property):
            assert _arguments(getattr(plain, name)) == _arguments(getattr(awaited, name)), name


def test_what_a_cache_is_opened_with() -> None:
    opened = set(_arguments(Cache)) - {"home"}
    assert set(CacheArguments.__annotations__) == opened == {field.name for field in fields(CacheSettings)}
    assert set(_arguments(AsyncCache)) == {"home", "threads", "arguments"}
    assert _arguments(AsyncCache)["home"] == _arguments(Cache)["home"]


def _arguments(method: Callable[..., object]) -> dict[str, tuple[object, object]]:
    return {each.name: (each.kind, each.default) for each in inspect.signature(method).parameters.values()}
