"""Where environments stand, as other processes of a server read it."""

from __future__ import annotations

import hashlib
import os

import pytest

from tvsnap.plugins.server import places
from tvsnap.plugins.server.places import NotKnown, Places
from tvsnap.plugins.server.tvcache.environments import Environments


def state(number: int) -> str:
    """Returns a state's name."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def test_another_process_reads_what_one_writes() -> None:
    shown = Places()
    shown.show(state(1), "one")
    child = os.fork()
    if child == 0:
        os._exit(0 if (shown.standing(state(1)), shown.standing(state(2))) == ("one", None) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_environments_are_shown_while_nobody_changes_them() -> None:
    shown = Places()
    environments = Environments(10, 60.0, lambda _: 0, shown)
    environments.put("t", state(1), "e1")
    assert shown.standing(state(1)) == "e1"
    assert environments.lease(state(1), state(2))
    assert shown.standing(state(1)) is None
    environments.put("t", state(2), "e1")
    assert (shown.standing(state(1)), shown.standing(state(2))) == (None, "e1")
    environments.give_up("t", "e1")
    assert shown.standing(state(2)) is None


def test_states_of_the_same_slot_have_to_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SLOTS", 1)
    shown = Places()
    shown.show(state(1), "one")
    assert shown.standing(state(2)) is None
    shown.show(state(2), "two")
    for number in (1, 2, 3):
        with pytest.raises(NotKnown):
            shown.standing(state(number))
    shown.show(state(1), None)
    assert (shown.standing(state(1)), shown.standing(state(2))) == (None, "two")


def test_a_long_id_has_to_be_asked_for() -> None:
    shown = Places()
    shown.show(state(1), "e" * 44)
    with pytest.raises(NotKnown):
        shown.standing(state(1))
    shown.show(state(1), "é" * 21)
    assert shown.standing(state(1)) == "é" * 21


def test_a_slot_that_is_being_written_has_to_be_asked_for() -> None:
    shown = Places()
    shown.show(state(1), "one")
    place = shown._memory.find(b"one")
    shown._memory[place : place + 1] = b"0"
    with pytest.raises(NotKnown):
        shown.standing(state(1))


def test_a_process_that_begins_anew_takes_all_away() -> None:
    shown = Places()
    shown.show(state(1), "one")
    Environments(10, 60.0, lambda _: 0, shown)
    assert shown.standing(state(1)) is None
