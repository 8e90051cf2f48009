"""Files, classes and environment variables that README.md and docs/ name are there."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache, reduce

import pytest

import tvsnap
from tests.docs.pages import ROOT, Page, pages

FOLDERS = ("benchmarks", "cli", "deploy", "docs", "examples", "images", "native", "scripts", "tests", "tvsnap")
_CODE = re.compile(r"`([^`]+)`")
_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*")
_FILE = re.compile(r"\w+\.(?:py|c|h)")
_DOTTED = re.compile(r"tvsnap(?:\.\w+)+")
_MEMBER = re.compile(r"([A-Z]\w+)\.(\w+)")
_VARIABLE = re.compile(r"TVSNAP_[A-Z_]+")


@cache
def files() -> frozenset[str]:
    """Returns the names of all files of the source tree."""
    return frozenset(path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())


@cache
def sources() -> str:
    """Returns all of the program's own source."""
    found = [path for folder in ("tvsnap", "cli", "scripts") for path in (ROOT / folder).rglob("*")]
    return "\n".join(path.read_text() for path in found if path.suffix in (".py", ".sh"))


def there(dotted: str) -> bool:
    """Returns whether a dotted name is that of a module, or of something in one."""
    parts = dotted.split(".")
    if ROOT.joinpath(*parts).with_suffix(".py").exists():  # what it imports need not be installed
        return True
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        try:
            reduce(getattr, parts[length:], module)
        except AttributeError:
            return False
        return True
    return False


def complaint(text: str) -> str:
    """Returns what is wrong with a name in code, if it is one that can be looked up."""
    if _PATH.fullmatch(text):
        return "" if (ROOT / text).exists() else "no such file"
    if _FILE.fullmatch(text):
        return "" if text in files() else "no file of this name"
    if _DOTTED.fullmatch(text.partition("(")[0]):
        return "" if text in sources() or there(text.partition("(")[0]) else "no such name"
    member = _MEMBER.fullmatch(text.partition("(")[0])
    if member and member[1] in tvsnap.__all__:
        found = getattr(tvsnap, member[1])
        known = {
            *dir(found),
            *getattr(found, "__dataclass_fields__", ()),
            *re.findall(r"self\.(\w+)", inspect.getsource(found)),
        }
        return "" if member[2] in known else "no such member"
    return ""


def code(page: Page) -> list[tuple[int, str]]:
    """Returns what the prose of a page shows as code, with the numbers of the lines."""
    return [(number, text) for number, line in page.prose for text in _CODE.findall(line)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_names_are_those_of_something(page: Page) -> None:
    wrong = [f"{page.name}:{number}: {text}: {complaint(text)}" for number, text in code(page) if complaint(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_environment_variables_are_read_somewhere(page: Page) -> None:
    named = {name for line in page.lines for name in _VARIABLE.findall(line)} - {"TVSNAP_TEST_IMAGES", "TVSNAP_TVCACHE"}
    assert {name for name in named if name not in sources()} == set()


@pytest.mark.parametrize(
    "text", ["tvsnap/nothing.py", "test_nothing_at_all.py", "tvsnap.Nothing", "tvsnap.host.nothing", "Cache.nothing"]
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert complaint(text)
