"""Edits of YAML text: what it says is changed, and everything beside that stays."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from corral.system.yaml_edits import with_another, with_documents, without_document


def with_document(text, at, before, after):
    return with_documents(text, {at: (before, after)})


LOBBY = """\
# the lobby of all
name: lobby   # its name
command: [python3, -u]  # program
maxPlayers: 10 # many
env:
  # secrets
  KEY: a  # first
  OTHER: b
# ports follow
ports:
  primary: {range: [1, 2]}  # tcp
stop:
  - signal: SIGTERM   # soft
  - command: stop
# the end
"""
BEFORE = {
    "name": "lobby",
    "command": ["python3", "-u"],
    "max_players": 10,
    "env": {"KEY": "a", "OTHER": "b"},
    "ports": {"primary": {"range": [1, 2]}},
    "stop": [{"signal": "SIGTERM"}, {"command": "stop"}],
}


def test_only_the_fields_that_differ_are_written() -> None:
    after = {
        **BEFORE,
        "max_players": 20,
        "env": {"KEY": "c", "NEW": "n"},
        "ports": {"primary": {"range": [1, 5]}},
        "memory_mb": 64,
    }
    assert (
        with_document(LOBBY, 0, BEFORE, after)
        == """\
# the lobby of all
name: lobby   # its name
command: [python3, -u]  # program
maxPlayers: 20 # many
env:
  # secrets
  KEY: c  # first
  NEW: n
# ports follow
ports:
  primary: {range: [1, 5]}  # tcp
stop:
  - signal: SIGTERM   # soft
  - command: stop
memory_mb: 64
# the end
"""
    )


def test_a_field_goes_with_its_lines_and_an_empty_object_is_written() -> None:
    after = {**BEFORE, "env": {}}
    del after["stop"], after["max_players"]
    assert (
        with_document(LOBBY, 0, BEFORE, after)
        == """\
# the lobby of all
name: lobby   # its name
command: [python3, -u]  # program
env: {}
# ports follow
ports:
  primary: {range: [1, 2]}  # tcp
# the end
"""
    )


def test_one_of_several_documents_is_changed_taken_out_or_added() -> None:
    text = "# first\nname: a\n---\n# second\nname: b\n---\nname: c # third\n"
    assert with_document(text, 1, {"name": "b"}, {"name": "b", "min": 1}) == (
        "# first\nname: a\n---\n# second\nname: b\nmin: 1\n---\nname: c # third\n"
    )
    assert without_document(text, 1) == "# first\nname: a\n---\nname: c # third\n"
    assert without_document(text, 0) == "---\n# second\nname: b\n---\nname: c # third\n"
    assert without_document(text, 2) == "# first\nname: a\n---\n# second\nname: b\n"
    assert with_another("name: a # x", {"name": "b"}) == "name: a # x\n---\nname: b\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("{name: a, max: 1}", {"name": "a", "max": 2}),
        ("- name: a\n  max: 1\n", {"name": "a", "max": 2}),
        ("max: [1\n", {"name": "a", "max": 2}),
        ("x: &x {max: 1}\n<<: *x\nname: a\n", {"name": "a", "max": 2}),
    ],
)
def test_what_is_written_otherwise_is_left_to_the_caller(text: str, after: dict[str, Any]) -> None:
    assert with_document(text, 0, {"name": "a", "max": 1}, after) is None


@pytest.mark.parametrize(
    "text", ["name: a\nmax: 1", "name: a\ntext: |\n  one\n\n", "name: a\r\ntext: >\r\n  one\r\n"]
)
def test_a_file_may_end_anyhow(text: str) -> None:
    before = yaml.safe_load(text)
    after = {**before, "name": "b", "min": 1}
    changed = with_document(text, 0, before, after)
    assert changed is not None
    assert yaml.safe_load(changed) == after
    assert changed.count("\r\n") == changed.count("\n") * ("\r\n" in text)


SCALARS = st.none() | st.booleans() | st.integers(-5, 99) | st.text("ab:#-'\"\n é{[", max_size=6)
KEYS = st.sampled_from(["a", "b", "c-d", "e f", "x: y", "#z"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5).map(lambda found: {"name": "x", **found})


def _style(value: Any, flow: bool) -> bool | None:
    """Lists and objects in brackets; a single value would have them around its key."""
    return None if flow and isinstance(value, list | dict) else False


@given(before=DOCUMENTS, after=DOCUMENTS, flow=st.booleans())
def test_any_document_becomes_any_other_and_keeps_the_comments_between_its_fields(
    before: dict[str, Any], after: dict[str, Any], flow: bool
) -> None:
    fields = [
        f"# {number}\n" + yaml.safe_dump({name: value}, default_flow_style=_style(value, flow))
        for number, (name, value) in enumerate(before.items())
    ]
    changed = with_document("".join(fields), 0, before, after)
    assert changed is not None
    assert yaml.safe_load(changed) == after
    assert [line for line in changed.split("\n") if line.startswith("# ")] == [
        f"# {number}" for number in range(len(fields))
    ]


def test_a_text_with_a_mark_of_its_encoding_is_written_whole() -> None:
    before, after = {"name": "lobby", "max": 1}, {"name": "lobby", "max": 2}
    assert with_document("\ufeffname: lobby\nmax: 1\n", 0, before, after) is None
    assert with_document("name: lobby\nmax: 1\n", 0, before, after) == "name: lobby\nmax: 2\n"


def test_several_documents_are_changed_at_once():
    text = "# one\nname: a\nmax: 1\n---\n# two\nname: b\nmax: 1\n---\nname: c\n"
    changes = {
        at: ({"name": name, "max": 1}, {"name": name, "max": 2, "min": at}) for at, name in enumerate("ab")
    }
    expected = "# one\nname: a\nmax: 2\nmin: 0\n---\n# two\nname: b\nmax: 2\nmin: 1\n---\nname: c\n"
    assert with_documents(text, changes) == expected
    assert with_documents(text, {5: changes[0]}) is None
