"""Ids, cursors, decisions, permissions and errors."""

from __future__ import annotations

import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corral
from corral.domain.events import Cursor, EventType
from corral.domain.ids import (
    MAX_COUNTER,
    Incarnation,
    first_incarnation,
    node_id,
    restart_incarnation,
    run_nonce,
    same_start,
)
from corral.domain.permissions import GRANTS, Permission, Role, allows
from corral.errors import Code, Rejected, nearest, unknown_choice


@pytest.mark.parametrize("good", ["a", "node-1", "n.1", "a_b", "0", "x" * 63])
def test_well_formed_node_ids_are_taken_as_they_are(good):
    assert node_id(good) == good


@pytest.mark.parametrize(
    "bad", ["", "-a", "a-", "A", "a/b", "..", "a..b", "ä", "a b", "x" * 64, "a\n", "../../etc", "a" * 10_000]
)
def test_malformed_node_ids_are_refused_by_name_and_field(bad):
    with pytest.raises(Rejected) as caught:
        node_id(bad, field="node.id")
    assert caught.value.code is Code.INVALID_FIELD
    assert caught.value.field == "node.id"
    assert len(caught.value.message) < 200


@given(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1))
def test_a_cursor_survives_its_text(epoch, sequence):
    cursor = Cursor(epoch, sequence)
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "bad", ["", "1", "1-", "-1", "1-2-3", "a-b", "01-2", "1-2\n", " 1-2", "9" * 30 + "-1"]
)
def test_text_that_is_no_cursor_is_refused(bad):
    with pytest.raises(Rejected) as caught:
        Cursor.parse(bad)
    assert caught.value.code is Code.INVALID_CURSOR


def test_restarts_of_one_start_share_its_numbers_and_never_reach_the_next_start() -> None:
    first, second = first_incarnation(7), first_incarnation(8)
    current, runs = first, [first]
    while (following := restart_incarnation(current)) is not None:
        current = following
        runs.append(current)
    assert len(runs) == 1024
    assert max(runs) < second
    assert all(same_start(first, run) for run in runs)
    assert not same_start(first, second)
    with pytest.raises(Rejected):
        first_incarnation(MAX_COUNTER)
    assert restart_incarnation(Incarnation(first + 1023)) is None


def test_roles_grow_from_viewer_to_admin_and_admin_may_everything():
    assert GRANTS[Role.VIEWER] < GRANTS[Role.OPERATOR] < GRANTS[Role.ADMIN]
    assert GRANTS[Role.ADMIN] == frozenset(Permission)
    assert not allows(Role.VIEWER, Permission.NODES_MANAGE)
    assert not allows(Role.OPERATOR, Permission.TOKENS_MANAGE)


def test_every_error_code_has_a_status_that_means_failure():
    assert all(400 <= code.status < 600 for code in Code)


def test_an_unknown_choice_lists_the_choices_and_guesses():
    error = unknown_choice("level", "DEBGU", ["INFO", "DEBUG"], code=Code.INVALID_FIELD)
    assert "did you mean 'DEBUG'? known: DEBUG, INFO" in str(error)
    assert nearest("zzz", ["INFO"]) is None
    none = unknown_choice("command", "instance list", (), code=Code.NOT_FOUND)
    assert none.hint == "there is no command at present"


def test_every_declared_event_type_is_published_somewhere():
    sources = [
        path.read_text()
        for path in pathlib.Path(corral.__file__).parent.rglob("*.py")
        if path.name != "events.py" or path.parent.name != "domain"
    ]
    published = set(re.findall(r"EventType\.([A-Z_]+)", "\n".join(sources)))
    assert {event.name for event in EventType} <= published


def test_a_nonce_from_a_node_is_a_short_word_or_none():
    assert run_nonce("n-ab_9") == "n-ab_9"
    for bad in ("", "a/../b", "a b", "x" * 64, "é", "a\n"):
        assert run_nonce(bad) == ""
