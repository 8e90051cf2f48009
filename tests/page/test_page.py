"""The page in a real browser: trees, states, differences, files, terminals; and what a browser must refuse it."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.page.conftest import ODD_TASK, TOKEN, TWO_SALTS, Site, picture

AXE = Path(__file__).parents[2] / "page" / "node_modules" / "axe-core" / "axe.min.js"


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


def test_the_first_view_is_the_whole_tree_in_letters_that_can_be_read(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/task/notes")
    expect(page.get_by_role("treeitem", name="echo three")).to_be_visible()
    frame = page.get_by_role("tree")
    assert frame.evaluate("(at) => at.scrollWidth <= at.clientWidth && at.scrollHeight <= at.clientHeight")
    assert frame.evaluate("(at) => at.querySelector('text').getBoundingClientRect().height") >= 11
    high = frame.bounding_box()
    assert high is not None
    assert high["height"] > 300
    expect(page.locator(".minimap")).to_have_count(0)
    for _ in range(4):
        page.get_by_role("button", name="Larger").click()
    small = page.locator(".minimap")
    expect(small).to_be_visible()
    box, around = small.bounding_box(), frame.bounding_box()
    assert box is not None
    assert around is not None
    assert box["y"] + box["height"] <= around["y"], "the small map covers the tree"
    page.get_by_role("button", name="Whole").click()
    expect(small).to_have_count(0)


@pytest.mark.parametrize("page", [{"viewport": {"width": 420, "height": 900}}], indirect=True, ids=("narrow",))
@pytest.mark.parametrize("task", ["notes", TWO_SALTS, "a chain"])
def test_a_narrow_screen_shows_the_whole_width_of_the_tree(page: Page, site: Site, task: str) -> None:
    page.goto(f"{site.server.url}/#/task/{task}")
    expect(page.get_by_role("treeitem", name="terminal").first).to_be_visible()
    expect(page.get_by_role("treeitem")).not_to_have_count(1)
    frame = page.get_by_role("tree")
    assert frame.evaluate("(at) => at.scrollWidth <= at.clientWidth")
    assert frame.evaluate("(at) => at.querySelector('text').getBoundingClientRect().height") >= 11
    picture(page, f"page-tree-narrow-{task.replace(' ', '-')}")


@pytest.mark.parametrize("page", [{"viewport": {"width": 420, "height": 900}}], indirect=True, ids=("narrow",))
def test_figures_and_names_are_whole_on_a_narrow_screen(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/tasks")
    for name in ("Tasks", "Files in /tmp"):
        table = page.get_by_role("region", name=name)
        expect(table.locator("tbody tr")).not_to_have_count(0)
        assert table.evaluate("(at) => at.scrollWidth <= at.clientWidth"), name
        page.goto(f"{site.server.url}/#/state/{site.states[5]}/files/tmp")
    page.goto(f"{site.server.url}/#/task/notes")
    lane = page.get_by_label("Timeline of rollouts").locator(".lane", has_text="reward").first
    assert lane.locator("a").evaluate("(at) => at.scrollWidth <= at.clientWidth")
    expect(lane.locator(".note")).to_be_visible()


def test_roots_and_siblings_are_told_apart(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/task/{TWO_SALTS}")
    expect(page.get_by_role("treeitem", name="terminal \u00d72 salt run-7")).to_be_visible()
    expect(page.get_by_role("treeitem", name="terminal \u00d71 salt run-8")).to_be_visible()
    notes = page.locator(".mark .note")
    assert min(box["x"] for box in notes.evaluate_all("(all) => all.map((at) => at.getBoundingClientRect())")) >= (
        page.get_by_role("tree").evaluate("(at) => at.getBoundingClientRect().x")
    )
    expect(page.get_by_role("treeitem", name="first", exact=False)).to_be_visible()
    expect(page.get_by_role("treeitem", name="second", exact=False)).to_be_visible()
    page.get_by_label("Timeline of rollouts").locator(".lane a").first.click()
    expect(page.get_by_text("image terminal; salt run-8")).to_be_visible()
    page.get_by_role("link", name="Its last state").click()
    expect(page.get_by_text("image terminal; salt run-8; 1 call from its root")).to_be_visible()


def test_where_rollouts_go_wrong_is_seen_by_colour(page: Page, site: Site) -> None:
    """Twelve rollouts part after their first call: those that were rewarded go on in another colour than the others."""
    page.goto(f"{site.server.url}/#/task/notes")
    page.get_by_label("Colour").select_option("change of reward")
    expect(page.get_by_text("less reward than from the state above")).to_be_visible()
    for number, shade in ((0, "d4"), (1, "d0")):
        branch = page.get_by_role("treeitem", name=f"echo {number} > other-{number}.txt")
        expect(branch.locator("path.edge")).to_have_class(re.compile(rf"\b{shade}\b"))


def test_a_rollout_is_read_call_by_call(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/task/notes")
    timeline = page.get_by_label("Timeline of rollouts")
    expect(timeline.get_by_role("heading", name="Epoch 3 4 rollouts, mean reward 0.750")).to_be_visible()
    timeline.locator(".lane a").last.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Rollout")
    expect(page).to_have_url(re.compile("#/rollout/[0-9a-f]+$"))
    calls = page.get_by_role("region", name="Calls of the rollout")
    expect(calls.get_by_role("row")).to_have_count(7)
    expect(calls.get_by_role("row", name="started")).to_contain_text("executed: it was not made in this state before")
    expect(calls.get_by_role("row", name="false")).to_contain_text("✗ 1")
    page.goto(f"{site.server.url}/#/task/notes")
    timeline.locator(".lane a").nth(-2).click()
    expect(calls.get_by_role("row")).to_have_count(5)
    first = calls.get_by_role("row").nth(1)
    expect(first.locator(".source")).to_have_text("hit")
    expect(first).not_to_contain_text("executed:")
    last = calls.get_by_role("row").last
    last.get_by_text("output").click()
    expect(last.locator(".output")).to_have_text("eno\nowt\nruof")
    picture(page.locator("main"), "page-rollout")
    last.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("State")


def test_a_loss_is_said_as_such(page: Page, site: Site) -> None:
    saved = page.locator(".cards .card", has_text="time saved")
    expect(saved).to_be_visible()

    def lose(route: Route) -> None:
        told = route.fetch().json()
        told["figures"]["saved_s"] = -5.0
        route.fulfill(json=told)

    page.route("**/v1/stats", lose)
    expect(page.locator(".cards .card", has_text="time not saved")).to_contain_text("5.00 s")
    expect(saved).to_have_count(0)


def test_outputs_are_searched(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/task/notes")
    page.get_by_label("Search").fill("RUOF")  # "four", as rev prints it
    expect(page.get_by_text("1 found")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_label("The chosen state")).to_contain_text("echo four >> notes.txt")


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
    assert rules["require-trusted-types-for"] == "'script'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_differences_are_read(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/state/{site.states[4]}/diff")
    patch = page.get_by_label("Lines that differ")
    expect(patch).to_contain_text("+three")
    picture(page.locator("main"), "page-difference")
    page.get_by_label("Compare with").fill(site.other[:12])
    page.get_by_role("button", name="Compare").click()
    expect(patch).to_contain_text("-four")
    assert page.url.endswith(f"/diff/{site.other[:12]}")


def test_files_are_listed_shown_and_downloaded(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/state/{site.states[5]}/files")
    page.get_by_role("link", name="tmp/").click()
    expect(page.get_by_role("link", name="deep/")).to_be_visible()
    page.get_by_role("button", name="notes.txt", exact=True).click()
    expect(page.get_by_label("/tmp/notes.txt")).to_contain_text("one\ntwo\nthree")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download notes.txt").click()
    assert download.value.suggested_filename == "notes.txt"
    assert download.value.path().read_text() == "one\ntwo\nthree\n"
    page.get_by_role("link", name="deep/").click()
    page.get_by_role("link", name="er/").click()
    expect(page.get_by_text("The folder is empty.")).to_be_visible()


def test_files_of_any_name_and_kind(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/state/{site.odd}/files/srv/odd")
    table = page.get_by_role("region", name="Files in /srv/odd")
    expect(table.get_by_role("row")).to_have_count(8)
    expect(table.get_by_role("row", name="fifo fifo 0644")).to_be_visible()
    expect(table.get_by_role("row", name="link → away^Jfrom symlink")).to_be_visible()
    expect(table.get_by_role("row", name="link-of-time")).to_contain_text("1970-01-01 00:00:01")
    page.get_by_role("button", name="line^Jbreak", exact=True).click()
    expect(page.get_by_label("/srv/odd/line^Jbreak")).to_contain_text("lines")
    page.get_by_role("button", name="\\xff\\u202ename", exact=True).click()
    expect(page.get_by_label("/srv/odd/\\xff\\u202ename")).to_contain_text("bytes")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download \\xff\\u202ename").click()
    assert download.value.path().read_text() == "bytes"
    page.get_by_role("link", name="\\xfe dir/").click()
    expect(page.get_by_role("button", name="inner", exact=True)).to_be_visible()
    assert page.url.endswith("/files/srv/odd/%fe%20dir")
    page.get_by_role("link", name="odd", exact=True).click()
    expect(table).to_be_visible()


def test_a_folder_of_many_names_says_where_it_was_cut(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/state/{site.odd}/files/srv/odd/many")
    expect(page.get_by_text("These are 1,000 of 1,200 names.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("row")).to_have_count(1201)
    page.get_by_label("Filter").fill("119")
    expect(page.get_by_role("row")).to_have_count(13)
    page.route("**/folder?**", lambda route: route.continue_(url=f"{route.request.url}&limit=100"))
    page.reload()
    expect(page.get_by_text("The folder has more names than these 100")).to_be_visible()


def test_what_is_gone_is_said(browser: Browser, site: Site) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.server.url}/#token={TOKEN}")
        page.route("**/files?path=**", lambda route: route.continue_(url=route.request.url.replace("notes", "gone")))
        page.goto(f"{site.server.url}/#/state/{site.states[5]}/files/tmp")
        page.get_by_role("button", name="Download notes.txt").click()
        expect(page.get_by_role("alert")).to_contain_text("/tmp/notes.txt: ")
        expect(page.get_by_role("alert")).to_contain_text("No such file or directory")


def test_what_is_not_what_it_looks_like_is_shown(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/tasks")
    page.get_by_role("link", name="odd\\u202eksat").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("odd\\u202eksat")
    expect(page).to_have_title("odd\\u202eksat · tvsnap")
    page.get_by_label("Search").fill("\u202eesrever")
    expect(page.get_by_text("1 found")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_label("The chosen state")).to_contain_text("safe \\u202eesrever\\u202c \\u200b")
    page.goto(f"{site.server.url}/#/state/{site.odd}")
    expect(page.locator(".output")).to_have_text("safe \\u202eesrever\\u202c \\u200b\nbell^G\\u202e")
    for view in (
        "tasks",
        f"task/{ODD_TASK}",
        f"state/{site.odd}",
        f"state/{site.odd}/diff",
        f"state/{site.odd}/files/srv/odd",
    ):
        page.goto(f"{site.server.url}/#/{view}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("…", exact=False).and_(page.get_by_role("status"))).to_have_count(0)
        assert not {*"\u202e\u202c\u200b\a"} & {*page.locator("body").inner_text()}, view


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nosuch/view", "The page has no view"),
        ("task/no-such-task", "no such task is known"),
        ("task/100%", "no such task is known"),
        ("state/" + "0" * 64, "no state"),
        ("rollout/no-such-rollout", "No such rollout is known"),
        ("state/{0}/nosuch", "A state has no part nosuch."),
    ],
)
def test_what_there_is_not_is_said(browser: Browser, site: Site, address: str, words: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.server.url}/#token={TOKEN}")
        page.goto(f"{site.server.url}/#/{address.format(site.states[1])}")
        expect(page.get_by_text(words)).to_be_visible()
        expect(page.get_by_role("link", name="tasks").first).to_be_visible()


def test_a_search_that_fails_is_said(browser: Browser, site: Site) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.server.url}/#token={TOKEN}")
        page.route("**/v1/search?**", lambda route: route.abort())
        page.goto(f"{site.server.url}/#/task/notes")
        page.get_by_label("Search").fill("four")
        expect(page.get_by_role("alert")).to_contain_text("Outputs were not searched")


def test_a_command_is_typed_in_a_terminal(page: Page, site: Site) -> None:
    page.goto(f"{site.server.url}/#/state/{site.states[4]}/terminal")
    expect(page.get_by_text("Open, in a fork of the state.")).to_be_visible()
    page.keyboard.type("printf '\\033[38;2;200;0;0m%s\\033[0m\\n' $((6*7))-$(tail -n 1 notes.txt)\n")
    expect(page.locator(".xterm-rows")).to_contain_text("42-three")
    assert page.evaluate(
        "document.querySelector('.xterm-screen').getBoundingClientRect().bottom"
        " <= document.querySelector('.shell').getBoundingClientRect().bottom"
    ), "the last row is cut"
    picture(page, "page-terminal")
    page.keyboard.type("exit\n")
    expect(page.get_by_text("The shell has ended, and the fork with it.")).to_be_visible()


def test_figures_and_rollouts_in_time(page: Page, site: Site) -> None:
    expect(page.get_by_role("img", name="Hit rate by epoch: 1 ")).to_be_visible()
    expect(page.get_by_role("img", name="Mean reward by epoch: 1 ")).to_be_visible()
    expect(page.get_by_text("hit rate", exact=True)).to_be_visible()
    page.get_by_text("page-home").evaluate("(shown) => { shown.textContent = '/data/run-7'; }")  # in the docs' picture
    picture(page, "page-overview")
    page.goto(f"{site.server.url}/#/task/notes?search=notes.txt")
    timeline = page.get_by_label("Timeline of rollouts")
    expect(timeline.get_by_role("img", name="2 calls in")).to_have_count(12)
    expect(timeline.locator(".t-answered").first).to_be_attached()
    picture(timeline, "page-timeline")
    expect(page.get_by_label("Search")).to_have_value("notes.txt")


VIEWS = (
    "",
    "tasks",
    "task/notes",
    "rollout/{1}",
    "state/{0}",
    "state/{0}/diff",
    "state/{0}/files/tmp",
    "state/{0}/terminal",
)
LOOKS = ({"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 700}})


@pytest.mark.parametrize("page", LOOKS, indirect=True, ids=("light", "dark", "narrow"))
def test_nothing_hinders_those_who_read_otherwise(page: Page, site: Site) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not there: install Node.js and npm, then make browser")
    found = {}
    for view in VIEWS:
        page.goto(f"{site.server.url}/#/{view.format(site.states[4], site.rollout)}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("…", exact=False).and_(page.get_by_role("status"))).to_have_count(0)
        expect(page.get_by_text("Loading…")).to_have_count(0)
        page.evaluate(AXE.read_text())
        for trouble in page.evaluate("axe.run().then((done) => done.violations)"):
            if trouble["impact"] in ("serious", "critical"):
                found[view, trouble["id"]] = [node["html"][:200] for node in trouble["nodes"][:3]]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    assert not found
