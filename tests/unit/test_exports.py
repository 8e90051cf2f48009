"""What the package exports."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvsnap
from tvsnap import errors, types

PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name) for module in (tvsnap, errors, types) for name in module.__all__
}


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_exported_is_documented(name: str) -> None:
    assert inspect.getdoc(PUBLIC[name])


def test_what_had_a_name_at_the_top_once_has_it_still() -> None:
    assert tvsnap.StateLost is errors.StateLost  # type: ignore[attr-defined]
    assert tvsnap.Command is types.Command  # type: ignore[attr-defined]
    assert {"errors", "types", *tvsnap.__all__} <= set(dir(tvsnap))


def test_what_is_not_exported_is_missing_in_words() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = tvsnap.Nothing  # type: ignore[attr-defined]


def test_the_list_type_checkers_and_the_documents_agree() -> None:
    tree = ast.parse(Path(tvsnap.__file__).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    imports = [node for node in imports if node.module != "tvsnap"]
    seen = {alias.asname or alias.name: node.module for node in imports for alias in node.names}
    assert sorted(seen) == sorted(tvsnap.__all__)
    assert {name: tvsnap._MODULES[name] for name in seen} == seen
    page = Path(__file__).parents[2].joinpath("docs", "api.md").read_text()
    documented = re.findall(r"^::: (tvsnap\.[\w.]+)$", page, re.MULTILINE)
    again = {f"tvsnap.errors.{name}" for name in errors.__all__ if name in tvsnap.__all__}
    assert sorted(documented) == sorted(PUBLIC.keys() - again)


def test_it_is_typed() -> None:
    assert Path(tvsnap.__file__).with_name("py.typed").exists()


INSIDE = {
    "AsyncRollout.place",
    "AsyncRollout.where",
    "Rollout.__init__",
    "Fetched.__init__",
    "ImageStore.manifest",
    "Terminal.__init__",
}
"""What tvsnap itself calls, and nobody else."""
FOR_OURSELVES = {
    "CacheArguments",
    "Call",
    "Closing",
    "Forgotten",
    "ImageSpec",
    "OpenRollout",
    "RemoteGraph",
    "RemoteImages",
    "RemoteRollout",
    "RemoteSandbox",
    "Resume",
    "Transport",
}
"""What a signature takes beside what users give it, and what a client returns in place of what a cache returns."""


def test_what_a_signature_names_is_exported() -> None:
    exported = list(PUBLIC.values())
    missing: dict[str, list[str]] = {}
    for owner in (found for found in exported if isinstance(found, type) and found is not types.Graph):
        for name, value in vars(owner).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__wrapped__", value)
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                where = f"{owner.__name__}.{name}"
                for kind in _named(*typing.get_type_hints(function).values()):
                    ours = kind.__name__ in FOR_OURSELVES or where in INSIDE
                    if kind.__module__.startswith("tvsnap") and kind not in exported and not ours:
                        missing.setdefault(kind.__name__, []).append(where)
    assert missing == {}


def _named(*hints: object) -> Iterator[type]:
    for hint in hints:
        if isinstance(hint, type):
            yield hint
        yield from _named(*typing.get_args(hint))
