"""The page in a real browser: trees, states, differences, files, terminals; and what a browser must refuse it."""

from __future__ import annotations

import urllib.request

from playwright.sync_api import Browser, Page, expect

from tests.page.conftest import TOKEN, Site, picture


def test_the_tree_is_searched_and_a_state_opened(page: Page, site: Site) -> None:
    assert TOKEN not in page.url
    page.get_by_role("link", name="Tasks").click()
    page.get_by_role("link", name="notes", exact=True).click()
    expect(page.get_by_role("treeitem").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("echo three")
    expect(page.get_by_text("1 found")).to_be_visible()
    page.keyboard.press("Enter")
    chosen = page.get_by_label("The chosen state")
    expect(chosen).to_contain_text("echo three >> notes.txt")
    picture(page, "page-tree")
    chosen.get_by_role("link", name="Open the state").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.states[4][:12])
    page.keyboard.press("u")
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.states[2][:12])


def test_folds_open_and_close_by_keys(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/task/a%20chain")
    tree = page.get_by_role("tree")
    fold = page.get_by_role("treeitem", name="calls")
    expect(fold).to_have_count(1)
    tree.focus()
    for key in ("Home", "ArrowRight", "ArrowRight", " "):
        page.keyboard.press(key)
    expect(fold).to_have_count(0)
    expect(page.get_by_role("treeitem")).to_have_count(8)
    page.keyboard.press(" ")
    expect(fold).to_have_count(1)


def test_what_sandboxes_print_stays_text(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/state/{site.states[2]}")
    shown = page.locator(".output", has_text="<script>")
    expect(shown).to_have_text("<script>window.broken = 1</script><img src=x onerror=window.broken=1>red end")
    expect(shown.locator(".ansi-1")).to_have_text("red")
    assert page.evaluate("window.broken") is None
    assert page.locator(".output img, .output script").count() == 0


def test_a_page_without_the_token_asks_for_it(browser: Browser, site: Site) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.server.url}/#/state/{site.states[1][:10]}")
        page.get_by_label("Token").fill("a-wrong-token-of-these-tests")
        page.get_by_role("button", name="Use it").click()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Use it").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(site.states[1][:12])
        assert context.cookies() == []


def test_what_the_server_tells_of_the_page_is_strict(site: Site) -> None:
    with urllib.request.urlopen(f"{site.server.url}/") as answer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
    rules = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
