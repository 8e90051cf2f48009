"""What commands and outputs tell a plug-in."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tvsnap.plugins.harnesses.clues import Numbered, lacking_network, reads_agent_logs


def test_names_drawn_by_chance_are_numbered_in_the_order_of_the_first() -> None:
    def told() -> list[str]:
        numbered, paste, transfer = Numbered(), uuid.uuid4().hex, uuid.uuid4()
        return [
            numbered(f"echo a | base64 -d > /tmp/.runtime-tmux-paste-{paste}"),
            numbered(f"tar czf /tmp/.hb-transfer-{transfer}.tar.gz -T /tmp/.hb-transfer-{transfer}.list"),
            numbered(f"tmux load-buffer -b runtime-paste-{paste}"),
        ]

    one = told()
    assert one == told()
    assert one[2] == f"tmux load-buffer -b runtime-paste-{0:032x}"
    assert one[1].count(f"{1:032x}") == 2


def test_what_an_agent_draws_by_chance_stays() -> None:
    command = f"echo {uuid.uuid4()} > /app/{uuid.uuid4().hex}"
    assert Numbered()(command) == command


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("cat /logs/agent/trajectory.json", True),
        ("ls -R /logs", True),
        ("cd /logs; ls", True),
        ('cat "$AGENT_LOGS_DIR"/x', True),
        ("echo 1 > /logs/verifier/reward.txt", False),
        ("cp x /logs/artifacts", False),
        ("cat /var/logs/x /app/logs.txt", False),
        ("cat /logs/verifier-2/x", True),
    ],
)
def test_logs_that_are_read(command: str, reads: bool, tmp_path: Path) -> None:
    assert reads_agent_logs(command) is reads
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/test.sh").write_text(command)
    assert reads_agent_logs(tmp_path) is reads
    assert reads_agent_logs(tmp_path / "deep/test.sh") is reads


def test_a_missing_network_is_told_by_the_line_that_says_so() -> None:
    assert lacking_network("all good\n") is None
    output = "one\ncurl: (6) Could not resolve host: example.org\nthree\n"
    assert lacking_network(output) == "curl: (6) Could not resolve host: example.org"
