"""The page of `tvsnap report` in a real browser, on a narrow screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser

from cli import report_view
from tests.unit.test_report import FIGURES, TALLY


def test_words_stay_whole_and_charts_can_be_read(browser: Browser, tmp_path: Path) -> None:
    tasks = [replace(TALLY, key=name) for name in ("fix-prices", "count-lines")]
    epochs = [replace(TALLY, key=str(number), reward=number / 3) for number in range(4)]
    advice = "more rollouts of each task and more epochs make calls again, and so more of them are answered"
    reason = {"reason": "were made in their state for the first time", "count": 315, "advice": advice}
    file = tmp_path / "report.html"
    file.write_text(report_view.report({**FIGURES, "reasons": [reason]}, epochs, tasks, [], []))
    with browser.new_context(viewport={"width": 420, "height": 900}) as context:
        page = context.new_page()
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        height = page.get_by_role("cell", name="3", exact=True).first.evaluate("(cell) => cell.clientHeight")
        for name in ("fix-prices", "count-lines"):
            cell = page.get_by_role("cell", name=name)
            assert cell.evaluate("(cell) => cell.clientHeight") <= height, "a name is in one line"
        shown = page.locator("svg text:visible").evaluate_all(
            "(all) => all.map((text) => text.getBoundingClientRect())"
        )
        assert shown
        assert min(box["height"] for box in shown) >= 8
        assert min(box["x"] for box in shown) >= 0
