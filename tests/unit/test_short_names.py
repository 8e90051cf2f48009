"""The short names by which users import plug-ins: modules of re-exports, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tvsnap

ROOT = Path(__file__).parents[2]
PACKAGE = Path(tvsnap.__file__).parent
PLUGINS = "tvsnap.plugins."
SHORT = ("client", "fleet", "integrations", "priors", "protocols", "ray", "registry", "testing", "training", "video")


def modules() -> dict[str, ast.Module]:
    """Returns what re-exports something of a plug-in, by its name."""
    found = [
        *(PACKAGE / f"{name}.py" for name in SHORT),
        *(path for name in SHORT for path in PACKAGE.glob(f"{name}/*.py")),
    ]
    names = {path: path.relative_to(PACKAGE.parent).with_suffix("") for path in found if path.exists()}
    return {".".join(name.parts).removesuffix(".__init__"): ast.parse(path.read_text()) for path, name in names.items()}


def exported(tree: ast.Module) -> set[str]:
    """Returns the names that a module re-exports."""
    return {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def documented() -> list[tuple[str, str]]:
    """Returns each module with each name of it that README.md and docs/ import."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pattern = rf"^from (tvsnap\.(?:{'|'.join(SHORT)})(?:\.\w+)*) import (.+)$"
    found = [match for page in pages for match in re.findall(pattern, page.read_text(), re.MULTILINE)]
    return sorted({(module, name) for module, names in found for name in re.split(r", *", names)})


@pytest.mark.parametrize("module", modules())
def test_a_short_name_only_re_exports(module: str) -> None:
    tree = modules()[module]
    listed: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Expr(ast.Constant(str())) | ast.If():  # the docstring; what `python -m` runs
                pass
            case ast.ImportFrom(module=str(origin)) if origin.startswith(PLUGINS):
                pass
            case ast.Import(names=[ast.alias(name=origin)]) if origin.startswith(PLUGINS):
                pass
            case ast.Assign([ast.Name("__all__")], value):
                listed = set(ast.literal_eval(value))
            case _:
                pytest.fail(f"{module} does more than re-export: {ast.unparse(node)}")
    assert listed == exported(tree)


@pytest.mark.parametrize(("module", "name"), documented())
def test_what_guides_import_is_re_exported(module: str, name: str) -> None:
    known = modules()
    assert name in exported(known[module]) or f"{module}.{name}" in known


def imported(tree: ast.Module) -> set[str]:
    """Returns the modules of tvsnap that a module imports when it runs, those that are imported for types left out."""
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
    }
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in for_types]
    return {node.module for node in nodes if node.module}


@pytest.mark.parametrize("path", sorted(ROOT.joinpath("cli").rglob("*.py")), ids=str)
def test_verbs_know_the_client_by_its_types_only(path: Path) -> None:
    assert not imported(ast.parse(path.read_text())) & {"tvsnap.client", "tvsnap.protocols"}
