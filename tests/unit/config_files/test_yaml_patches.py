from __future__ import annotations

from typing import Any

import pytest
import yaml
from config_documents import documents, keys, merged_values, places, same, values, with_value
from hypothesis import given
from hypothesis import strategies as st

from corral.daemon.config_files.text_edits import Impossible, Malformed
from corral.daemon.config_files.values import Untyped
from corral.daemon.config_files.yaml_text import merge, put

SAMPLE = b"""\
# the file's own words
server:   # the server
  port: 8080   # web
  name: 'x'
  empty:
  about: |
    long
    text

  # about to end
list:
- a: 1
  b: 2   # two
- c
flow: {a: 1, b: [1, 2]}
last: end
# behind everything
"""


def loaded(data: bytes) -> Any:
    return yaml.load(data, Loader=yaml.CSafeLoader)


def dumped(document: Any, *, flow: bool | None, crlf: bool) -> bytes:
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, default_flow_style=flow, allow_unicode=True)
    return text.encode().replace(b"\n", b"\r\n") if crlf and b"\r" not in text.encode() else text.encode()


@given(st.data(), documents(), values(), st.sampled_from([None, True, False]), st.booleans())
def test_what_is_set_is_read_back_and_nothing_else_changes(data, document, value, flow, crlf):
    text = dumped(document, flow=flow, crlf=crlf)
    document = loaded(text)
    steps = data.draw(places(document))
    outcome = put(text, steps, value, create=True)
    assert same(loaded(outcome), with_value(document, steps, value)), outcome.decode()


@given(documents(), documents(), st.sampled_from([None, True, False]), st.sampled_from([None, True, False]))
def test_a_merge_says_what_both_layers_say(lower, upper, flow, other_flow):
    outcome = merge(dumped(lower, flow=flow, crlf=False), dumped(upper, flow=other_flow, crlf=False))
    assert same(loaded(outcome), merged_values(lower, upper)), outcome.decode()


@given(st.dictionaries(keys.filter(lambda key: len(key) < 100), st.integers(), min_size=1), st.data())
def test_comments_survive_whatever_is_set(document, data):
    lines = dumped(document, flow=False, crlf=False).decode().split("\n")
    comments = [f"# note {number}" for number in range(len(lines) - 1)]
    text = "\n".join(part for pair in zip(comments, lines, strict=False) for part in pair) + "\n"
    if loaded(text.encode()) != document or any(line.startswith("?") for line in lines):
        return  # keys over several lines, and those with a question mark
    outcome = put(text.encode(), data.draw(places(document)), data.draw(values()), create=True).decode()
    assert [line for line in outcome.splitlines() if line in comments] == comments


@pytest.mark.parametrize(
    ("steps", "value", "old", "new"),
    [
        (("server", "port"), 9, "port: 8080   # web", "port: 9   # web"),
        (("server", "name"), "it's", "name: 'x'", "name: 'it''s'"),
        (("server", "empty"), "8080", "empty:", 'empty: "8080"'),
        (("server", "empty"), "lobby", "empty:", "empty: lobby"),
        (("server", "about"), "no", "about: |\n    long\n    text", 'about: "no"'),
        (("server", "new"), [1, {"a": 2}], "text\n\n", "text\n\n  new:\n    - 1\n    - a: 2\n"),
        (("list", "0", "b"), True, "b: 2   # two", "b: true   # two"),
        (("list", "2"), "d", "- c", "- c\n- d"),
        (("list", "1"), {"q": [1]}, "- c", "- {q: [1]}"),
        (("flow", "c"), 1.5, "2]}", "2], c: 1.5}"),
        (("flow", "b", "1"), None, "2]", "null]"),
        (("last",), {"x": {"z": 1}}, "last: end", "last:\n  x:\n    z: 1"),
        (("more", "deep"), "v", "last: end", "last: end\nmore:\n  deep: v"),
    ],
)
def test_only_the_value_s_own_text_changes(steps, value, old, new):
    assert put(SAMPLE, steps, value, create=True).decode() == SAMPLE.decode().replace(old, new, 1)


def test_a_map_that_becomes_a_scalar_keeps_the_comment_of_its_key():
    outcome = put(SAMPLE, ("server",), 1, create=True).decode()
    assert "server: 1   # the server\n\n  # about to end\nlist:" in outcome


def test_a_file_with_nothing_but_comments_gets_its_first_key():
    assert put(b"# nothing yet", ("a", "b"), 1, create=True) == b"# nothing yet\na:\n  b: 1"
    assert put(b"", ("a",), "x", create=True) == b"a: x\n"
    assert loaded(put(b"---\n", ("a",), "x", create=True)) == {"a": "x"}
    assert loaded(put(b"null\n", ("a",), "x", create=True)) == {"a": "x"}


@pytest.mark.parametrize(
    ("text", "typed"), [("25565", 25565), ("true", True), ("007", "007"), ("a b", "a b")]
)
def test_a_variable_alone_takes_the_type_it_looks_like_unless_a_text_is_there(text, typed):
    assert loaded(put(b"port: 1\n", ("port",), Untyped(text), create=True)) == {"port": typed}
    assert loaded(put(b"port: ''\n", ("port",), Untyped(text), create=True)) == {"port": text}


def test_replacing_needs_the_key():
    with pytest.raises(Impossible, match=r"no 'server\.nope'"):
        put(SAMPLE, ("server", "nope"), 1, create=False)
    assert b"port: 1 " in put(SAMPLE, ("server", "port"), 1, create=False)


@pytest.mark.parametrize("steps", [("list", "x"), ("list", "3"), ("last", "deeper"), ("list", "99999999999")])
def test_a_place_that_cannot_be_is_refused(steps):
    with pytest.raises(Impossible):
        put(SAMPLE, steps, 1, create=True)


def test_an_anchor_stays_with_its_place_and_what_aliases_it_is_not_touched():
    text = b"base: &b {a: 1}\nuser: *b\nplain: &p 5\nother: *p\n"
    assert put(text, ("plain",), 6, create=True) == text.replace(b"&p 5", b"&p 6")
    assert put(text, ("base", "a"), 2, create=True) == text.replace(b"a: 1", b"a: 2")
    with pytest.raises(Impossible, match="alias"):
        put(text, ("user", "a"), 2, create=True)
    with pytest.raises(Impossible):  # its alias would point nowhere
        put(b"a:\n  b: &x 1\nc: *x\n", ("a",), 0, create=True)


def test_objects_are_not_made_and_tags_stay():
    text = b"danger: !!python/object/apply:os.system ['true']\nport: 1\n"
    assert put(text, ("port",), 2, create=True) == text.replace(b"port: 1", b"port: 2")


def test_a_bomb_of_aliases_is_edited_at_once_and_not_set_off_by_a_merge():
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = "\n".join(layers).encode() + b"\n"
    assert put(bomb, ("port",), 1, create=True) == bomb + b"port: 1\n"
    assert merge(bomb, b"port: 1\n") == bomb + b"port: 1\n"
    with pytest.raises(Malformed, match="aliases"):
        merge(b"port: 1\n", bomb)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a: 1\nb: [1,\n", 3),
        (b"a: 1\n\tb: 2\n", 2),
        (b"a: 1\n\xff\n", 2),
        (b"a: 1\n---\nb: 1\n", 2),
        (b"a: *nobody\n", 1),
        (b"\n" + b"[" * 5000, 2),
        (b"a: 1\nb: \x01\n", 2),
    ],
)
def test_a_file_that_does_not_parse_is_named_with_its_line(text, line):
    with pytest.raises(Malformed) as caught:
        put(text, ("a",), 1, create=True)
    assert caught.value.line == line


def test_a_layout_that_is_not_edited_in_place_is_written_anew():
    assert loaded(put(b"? a\n: 1\n? b\n: 2\n", ("a",), 3, create=True)) == {"a": 3, "b": 2}


@pytest.mark.parametrize("header", ["|", "|+", ">-", "|4", ">2+ # note", "&x |"])
@pytest.mark.parametrize("steps", [("b",), ("a", "b")])
def test_a_text_that_ends_with_the_file_stays_what_it_is_when_lines_follow(header, steps):
    text = f"# note\na:\n  text: {header}\n      hi\n      there".encode()
    outcome = put(text, steps, 1, create=True)
    assert loaded(outcome) == with_value(loaded(text), steps, 1)
    assert outcome.startswith(b"# note\na:\n  text: ")


def test_a_value_of_a_key_with_a_question_mark_changes_in_its_place():
    text = b"# note\n? a\n: 1 # one\nb: # nothing\n"
    assert put(text, ("a",), 2, create=True) == text.replace(b": 1", b": 2")
    # Between a key and its colon nothing is edited: the file is written anew, with what it leaves open.
    assert loaded(put(b"? a # one\n: 1\nb:\nc: ~\n", ("a",), 2, create=True)) == {
        "a": 2,
        "b": None,
        "c": None,
    }


def test_a_byte_order_mark_stays():
    assert put(b"\xef\xbb\xbfa: 1\n", ("a",), 2, create=True) == b"\xef\xbb\xbfa: 2\n"


def test_a_merge_keeps_the_lower_layer_s_comments_and_replaces_lists():
    outcome = merge(
        SAMPLE, b"server: {port: 1, sub: {deep: true}}\nlist: [z]\nnew: &n {k: v}\ncopy: *n\n"
    ).decode()
    assert "port: 1   # web" in outcome
    assert "# about to end" in outcome
    assert loaded(outcome.encode()) == loaded(SAMPLE) | {
        "server": loaded(SAMPLE)["server"] | {"port": 1, "sub": {"deep": True}},
        "list": ["z"],
        "new": {"k": "v"},
        "copy": {"k": "v"},
    }


def test_a_merge_leaves_the_layout_of_what_both_layers_say():
    lower = b"a: 'x'\nlist:\n  - 1 # one\n  - 0x10\ntext: |\n  hi\nnone: ~\n"
    assert merge(lower, b'a: "x"\nlist: [1, 0x10]\ntext: "hi\\n"\nnone: null\n') == lower


def test_a_merge_into_an_alias_spares_what_it_stands_for():
    lower = b"base: &b {a: 1, c: 3}\nuser: *b\n"
    assert loaded(merge(lower, b"user: {a: 2}\n")) == {"base": {"a": 1, "c": 3}, "user": {"a": 2, "c": 3}}
