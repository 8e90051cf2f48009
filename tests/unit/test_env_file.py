"""Files of environment variables come to what `docker compose` makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvsnap.images.errors import ImageSpecError
from tvsnap.plugins.tasks.env_file import read_env_file

CASES = {
    "A=1": {"A": "1"},
    "# a comment\n\n  A = 1  \n": {"A": "1"},
    "export A=1\nexport B": {"A": "1"},
    "A: 1": {"A": "1"},
    "A=\nB=2": {"A": "", "B": "2"},
    "A=a b   # a comment": {"A": "a b"},
    "A=a#b": {"A": "a#b"},
    "A= # no comment\nB= \nC=1\t# no comment": {"A": "# no comment", "B": "", "C": "1\t# no comment"},
    "A=it's": {"A": "it's"},
    'A="a b"   # a comment': {"A": "a b"},
    'A="a # b"': {"A": "a # b"},
    r'A="one\ntwo\\n \"q\""': {"A": 'one\ntwo\\n "q"'},
    'A="one\ntwo"\nB=2': {"A": "one\ntwo", "B": "2"},
    "A='one\ntwo'\nB=2": {"A": "one\ntwo", "B": "2"},
    r"A='it\'s \n'": {"A": r"it's \n"},
    "A=/srv\nB=${A}/b\nC=$A/c": {"A": "/srv", "B": "/srv/b", "C": "/srv/c"},
    "A=x\nB='${A} stays'": {"A": "x", "B": "${A} stays"},
    'A=x\nB="${A}\\$A$$A"': {"A": "x", "B": "x$A$A"},
    "A=${KNOWN}${OTHER:-d}${NONE}": {"A": "known" + "d"},
    "KNOWN=own\nA=$KNOWN": {"KNOWN": "own", "A": "known"},
    "A=1\r\nB=2\r\n": {"A": "1", "B": "2"},
    "KNOWN\nNONE\nA=1": {"KNOWN": "known", "A": "1"},
    "A=b=c": {"A": "b=c"},
    "A.B-C=1": {"A.B-C": "1"},
    "": {},
}


@pytest.mark.parametrize(("text", "variables"), CASES.items(), ids=list(CASES))
def test_what_a_file_says(tmp_path: Path, text: str, variables: dict[str, str]) -> None:
    (tmp_path / "env").write_bytes(text.encode())
    assert read_env_file(tmp_path / "env", {"KNOWN": "known"}) == variables


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read_env_file(tmp_path / "env") == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('A=1\nB="open\n', r'env: line 2 has a value whose quote \("\) is not closed'),
        ("A='open", r"env: line 1 has a value whose quote \('\) is not closed"),
        ("A=1\n\n= 2", "env: line 3 begins with no name of a variable"),
        ("two words", "env: line 1 begins with no name of a variable"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "env").write_text(text)
    with pytest.raises(ImageSpecError, match=complaint):
        read_env_file(tmp_path / "env")
