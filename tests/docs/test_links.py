"""Every relative link in README.md and docs/ leads somewhere, on the site and where GitHub shows the page."""

from __future__ import annotations

import pytest

from tests.docs.pages import DOCS, README, ROOT, Page, anchors_of_github, anchors_of_site, pages

OUTSIDE = ("http://", "https://", "mailto:")
BY_PATH = {page.path: page for page in pages()}


def complaints(page: Page) -> list[str]:
    """Returns what is wrong with the links of a page, a line each."""
    wrong = []
    for number, target in page.links:
        if target.startswith(OUTSIDE):
            continue
        place, _, anchor = target.partition("#")
        path = (page.path.parent / place).resolve() if place else page.path
        if path not in BY_PATH and not path.exists():
            wrong.append(f"{page.name}:{number}: {target}: no such file")
        elif page.path != README and not path.is_relative_to(DOCS):
            wrong.append(f"{page.name}:{number}: {target}: not part of the site")
        elif anchor:
            there = BY_PATH.get(path)
            if there is None or anchor not in anchors_of_site(there) & anchors_of_github(there):
                wrong.append(f"{page.name}:{number}: {target}: no such heading")
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    assert not complaints(page), "\n".join(complaints(page))


def test_a_broken_link_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ["# A page", "", "[a](nowhere.md), [b](index.md#nothing), [c](../README.md), [d](#a-page), [e](index.md)"]
    page = Page(DOCS / "made-up.md", text, prose=list(enumerate(text, 1)))
    monkeypatch.setitem(BY_PATH, page.path, page)
    assert [line.rpartition(": ")[2] for line in complaints(page)] == [
        "no such file",
        "no such heading",
        "not part of the site",
    ]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ahead = set(), [README]
    while ahead:
        path = ahead.pop()
        if path in reached or path not in BY_PATH:
            continue
        reached.add(path)
        targets = [target.partition("#")[0] for _, target in BY_PATH[path].links]
        ahead += [(path.parent / target).resolve() for target in targets if target and not target.startswith(OUTSIDE)]
    missed = {path.relative_to(ROOT).as_posix() for path in BY_PATH.keys() - reached if path.exists()}
    assert missed <= {"docs/index.md"}, "no page links to these"  # the site's own first page stands for the README
