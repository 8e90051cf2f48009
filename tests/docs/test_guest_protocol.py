"""The page about the guest protocol has every letter of the protocol's definition, and no other."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT

DEFINITION = (ROOT / "native" / "init" / "protocol.h").read_text()
PAGE = (DOCS / "guest-protocol.md").read_text()


def _defined(kind: str) -> set[str]:
    """Returns the letters of `request` or `answer`."""
    return set(re.findall(rf"\b{kind.upper()}_[A-Z_]+ = '(\w)'", DEFINITION))


def _listed(heading: str) -> set[str]:
    """Returns the letters in the first column of the table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\w`(?:, )?)+) \|", section, re.MULTILINE)
    return {letter for row in rows for letter in re.findall(r"`(\w)`", row)}


def test_requests() -> None:
    assert _defined("request")
    assert _listed("Requests") == _defined("request")


def test_answers() -> None:
    assert _defined("answer")
    assert _listed("Answers") == _defined("answer")


def test_modes_of_the_shell() -> None:
    defined = set(re.findall(r"\bSHELL_[A-Z]+ = (\d)", DEFINITION))
    section = PAGE.partition("The shell's mode, in `I`")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| (\d) \|", section, re.MULTILINE)) == defined
