"""What the documentation consists of: the README's length, the site's pages, the API's names, the glossary."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

import tvsnap
from cli.main import VERBS
from tests.docs.pages import DOCS, README, ROOT, Page, blocks, pages, read

WORDS = (
    "backend", "checkpoint", "environment", "fork", "hit", "image", "lease", "replay", "restore", "rollout", "root",
    "sandbox", "snapshot", "state", "task", "tool call",
)  # fmt: skip
"""What the glossary must explain."""


def _entries(nav: Any) -> list[str]:
    """Returns the files that a navigation names, in its order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [entry for part in parts for entry in _entries(part)]


def site() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return settings


def test_the_readme_is_short() -> None:
    assert len(read(README).lines) <= 200


def test_the_site_has_each_page_once() -> None:
    there = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(_entries(site()["nav"])) == there


def test_the_site_is_built_where_git_ignores_it() -> None:
    top = site()["site_dir"].partition("/")[0]
    assert f"/{top}/" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_site_loads_nothing_from_other_hosts() -> None:
    settings = site()
    assert settings["theme"]["font"] is False
    given = [*settings.get("extra_css", []), *settings.get("extra_javascript", [])]
    assert not [name for name in given if "//" in name]
    assert all((DOCS / name).is_file() for name in given)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_each_page_has_one_title_and_an_introduction(page: Page) -> None:
    titles = [(number, line) for number, line in page.prose if line.startswith("# ")]
    assert len(titles) == 1
    assert titles[0][0] == 1, "the title is the first line"
    first = next(line for line in page.lines[1:] if line)
    assert first[0].isalpha() or first[0] in ">*`[" or page.name == "docs/changelog.md", (
        "then comes what the page is about"
    )


def test_the_api_page_has_what_the_package_exports() -> None:
    named = re.findall(r"^::: tvsnap\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(tvsnap.__all__)


def test_the_command_line_page_has_every_verb() -> None:
    listed = re.findall(r"^\| `tvsnap ([a-z]+)` \|", (DOCS / "command-line.md").read_text(), re.MULTILINE)
    assert listed == list(VERBS)


def glossary() -> dict[str, list[str]]:
    """Returns the words of the glossary, each with those that are not to be used in its place."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| .+ \|(.*)\|$", (DOCS / "concepts.md").read_text(), re.MULTILINE)
    return {word: [other.strip() for other in others.split(",") if other.strip()] for word, others in rows}


def test_the_glossary_is_in_order_and_has_what_it_must_have() -> None:
    words = list(glossary())
    assert words == sorted(words)
    assert not set(WORDS) - set(words)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_one_word_for_each_concept(page: Page) -> None:
    instead = {other: word for word, others in glossary().items() for other in others}
    assert instead, "the glossary names words that are not to be used"
    for number, line in page.prose:
        if page.name == "docs/concepts.md" and line.startswith("| **"):
            continue
        words = re.sub(r"`[^`]*`", "", line).lower()
        for other, word in instead.items():
            assert not re.search(rf"\b{other}(s|d|es|ed)?\b", words), (
                f'{page.name}:{number}: say "{word}", not "{other}"'
            )


def test_blocks_of_code_are_narrow_enough_to_be_read() -> None:
    wide = [
        f"{page.name}:{block.line + offset}"
        for page in pages()
        for block in page.blocks
        for offset, line in enumerate(block.text.splitlines(), 1)
        if len(line) > 110
    ]
    assert not wide


def test_languages_of_blocks_are_those_that_are_checked() -> None:
    assert {block.language for page in pages() for block in page.blocks} <= {"", "python", "yaml", "json"}
    assert blocks("python")
    assert blocks("yaml")
