"""A real server with rollouts of sandboxes, and a real browser that looks at its page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect, sync_playwright

import tvsnap
from tests.server.conftest import Server, server_home, start

__all__ = ["server_home"]

TOKEN = "the-token-of-these-tests"
HOSTILE = (
    "printf '<script>window.broken = 1</script><img src=x onerror=window.broken=1>"
    "\\033[31mred\\033[0m\\033]0;title\\007 end'"
)
BEGIN = "sleep 1; cd /tmp"
"""What all rollouts of a task begin with; it takes long enough that its answers save time."""
NOTES = "printf 'one\\ntwo\\n' > notes.txt"
TWO_SALTS = "two salts"
ALIKE = "printf 'a text that is written by both of them\\n' > the-file-of-"
ODD_TASK = "odd\u202eksat"
ODD = [
    "mkdir /srv/odd; cd /srv/odd; printf bytes > $'\\xff\\u202ename'; printf lines > $'line\\nbreak'",
    "mkdir $'\\xfe dir'; mkfifo fifo; ln -s $'away\\nfrom' link; mkdir many; (cd many; touch {1..1200})",
    "touch $'\\xfe dir/inner'",
    "echo 'safe \u202eesrever\u202c \u200b'; printf 'bell\\a\\xe2\\x80\\xae'; touch -d @1.5 link-of-time",
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURES = os.environ.get("TVSNAP_PICTURES")
"""A folder for pictures of what the tests see; none are taken without it."""


@dataclass
class Site:
    """A server with recorded rollouts.

    Attributes:
        server: the server.
        states: the state after each call of the first rollout, its root first.
        rollout: the id of the first rollout.
        other: where another rollout of the task has ended.
        odd: a state with names of files, outputs and calls that are not what they look like.
    """

    server: Server
    states: list[str]
    rollout: str
    other: str
    odd: str


@pytest.fixture(scope="module")
def site(server_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server whose clients show a token, and some rollouts of two tasks."""
    home = tmp_path_factory.mktemp("page-home")
    (home / "images").symlink_to((server_home / "images").resolve())
    tokens = home / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    server = start(home, "--token-file", str(tokens))
    with tvsnap.connect(server.url, token=TOKEN) as client:
        states = _rollout(
            client,
            [
                BEGIN,
                NOTES,
                HOSTILE,
                "echo three >> notes.txt",
                "mkdir -p deep/er",
                "false",
            ],
            reward=1.0,
        )
        other = _rollout(client, [BEGIN, NOTES, "echo four >> notes.txt", "rev notes.txt"], reward=0.0)
        for number in range(12):
            epoch, reward = 1 + number // 4, float(number % 4 < number // 4 + 1)
            _rollout(client, [BEGIN, f"echo {number} > other-{number}.txt"], epoch=epoch, reward=reward)
        for number, salt in enumerate(("run-7", "run-8")):
            alike = [f"{ALIKE}{end}" for end in ("first", "second")[number:]]
            for command in alike:
                _rollout(client, ["pwd", command], task=TWO_SALTS, epoch=2, salt=salt)
        _rollout(client, [f"echo {number} > step-{number}" for number in range(7)], task="a chain", epoch=2)
        odd = _rollout(client, ODD, task=ODD_TASK, epoch=2)
        [first] = [one.rollout.id for one in client.graph.summaries(task="notes") if one.rollout.state == states[-1]]
    yield Site(server, states, first, other[-1], odd[-1])
    assert server.stop() == 0


def _rollout(
    client: tvsnap.Client,
    commands: list[str],
    task: str = "notes",
    reward: float | None = None,
    epoch: int = 1,
    salt: str = "",
) -> list[str]:
    with client.rollout("terminal", task=task, epoch=epoch, salt=salt) as rollout:
        states = [rollout.state]
        for command in commands:
            rollout.call("bash", {"command": command})
            states.append(rollout.state)
        if reward is not None:
            rollout.record(reward)
    return states


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The distribution's Chromium.

    It ends with the module, as Playwright runs an event loop in the main thread meanwhile, and `asyncio.run` of other
    tests would be refused there.
    """
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        # As root it has no sandbox of its own; a container may have a small /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page in a browser of its own, which has the token; it must not complain, nor ask anybody else."""
    options: dict[str, Any] = getattr(request, "param", {})
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    troubles: list[str] = []

    def noted(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            troubles.append(message.text)

    def asked(request: Request) -> None:
        if not request.url.startswith((site.server.url, "data:", "blob:")):
            troubles.append(f"asked for {request.url}")

    opened.on("console", noted)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("request", asked)
    opened.goto(f"{site.server.url}/#token={TOKEN}")
    yield opened
    context.close()
    assert not troubles


def picture(seen: Page | Locator, name: str) -> None:
    """Keeps a picture of what is seen, where that is asked for."""
    if PICTURES:
        seen.screenshot(path=Path(PICTURES, f"{name}.png"))
