"""What one shell said last spares taking apart what says the same; it never hides what says something else."""

from __future__ import annotations

import random

import pytest

from tvsnap.guest.protocol import GuestInfo
from tvsnap.sandboxes import shell_report
from tvsnap.sandboxes.shell_report import ShellReports

INFO = GuestInfo(7, True, "0-0", 1, True, "0", True)
REPORT = rb"""declare -- BASH="/bin/bash"
declare -A BASH_ALIASES=([ll]="ls" )
declare -a BASH_ARGV=()
declare -i BASHPID="7"
declare -a BASH_LINENO=([0]="0" [1]="3")
declare -- EPOCHREALTIME="1790000000.000001"
declare -a FUNCNAME
declare -- IFS=$' \t\n'
declare -i SECONDS="5"
declare -- _="true"
declare -- __tvsnap_l="4"
declare -- __tvsnap_o="5 1790000000"
declare -- text="a
declare -- _=\"b\"
c"
"""
REPORT += b"\1functions\nf () \n{ \n    bind x\n}\ndeclare -f f\n\1aliases\n\1options\nset +o posix\n\1traps\n"
REPORT += b"\1clock\n0 1790000000\n5 1790000005\n\1last\n0 \n"
SAME = (
    (b'BASHPID="7"', b'BASHPID="8"'),
    (b'EPOCHREALTIME="1790000000.000001"', b'EPOCHREALTIME="1790000001.5"'),
    (b'SECONDS="5"', b'SECONDS="6"'),
    (b'_="true"', b'_="-x"'),
    (b'BASH_LINENO=([0]="0" [1]="3")', b'BASH_LINENO=([0]="9")'),
    (b'__tvsnap_o="5 1790000000"', b'__tvsnap_o="9 1790000004"'),
    (b"5 1790000005", b"9 1790000009"),
)
OTHERS = (
    (b"5 1790000005", b"6 1790000005"),
    (b"set +o posix", b"set -o posix"),
    (b"bind x", b"bind y"),
    (b"bind x", b"echo x"),
    (b'BASH="/bin/bash"', b'BASH="/bin/bas"'),
    (b"declare -i SECONDS", b"declare -ix SECONDS"),
    (b'_="true"\n', b'_="true"\ndeclare -- x="1"\n'),
    (b'_=\\"b\\"', b'_=\\"d\\"'),  # no declaration, but a part of another one's value
    (b'_="true"\n', b""),
    (b"\1last\n0", b"\1last\n1"),
)


def seen(*reports: bytes) -> tuple[str, frozenset[str]]:
    """Returns what comes of the last of several reports of one shell."""
    memory = ShellReports()
    return [memory.seen(report, INFO) for report in reports][-1]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_no_part_of_the_state_is_not_read_again(
    old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ShellReports()
    first = memory.seen(REPORT, INFO)
    assert old in REPORT
    other = REPORT.replace(old, new, 1)
    assert seen(other) == first
    monkeypatch.setattr(shell_report, "declared", pytest.fail)
    assert memory.seen(other, INFO) == memory.seen(REPORT, INFO) == first


@pytest.mark.parametrize(("old", "new"), OTHERS)
def test_all_else_is(old: bytes, new: bytes) -> None:
    assert old in REPORT
    other = REPORT.replace(old, new, 1)
    assert seen(REPORT, other) == seen(other) != seen(REPORT)


def test_a_memory_makes_no_difference() -> None:
    chance = random.Random(1)
    pieces = (b'"', b"\\", b"\n", b"\1", b"(", b")", b"$'", b"declare -- ", b'_="x"\n', b"\1clock\n0 1\n2 3\n", b"1")
    memory = ShellReports()
    for _ in range(3000):
        report = bytearray(REPORT)
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(report))
            report[at : at + chance.randrange(3)] = chance.choice(pieces)
        assert memory.seen(bytes(report), INFO) == seen(bytes(report)), bytes(report)


def test_a_shell_that_says_nothing_is_never_the_same() -> None:
    memory = ShellReports()
    assert memory.seen(None, INFO) != memory.seen(None, INFO)


def test_what_one_shell_said_is_not_read_again_for_another() -> None:
    read: list[bytes] = []
    mine = REPORT.replace(b"set +o posix", b"set -o vi")
    for report in (mine, mine.replace(*SAME[0]), mine.replace(*OTHERS[2]), mine.replace(*SAME[1])):
        ShellReports().come_to(read.append, report)
    assert read == [mine, mine.replace(*OTHERS[2])]
