from __future__ import annotations

import tomllib

import pytest
import tomlkit
from config_documents import documents, keys, merged_values, places, same, values, with_value
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.daemon.config_files.text_edits import Impossible, Malformed
from corral.daemon.config_files.toml_text import merge, put

SAMPLE = b"""\
# the file's own words
title = "x"   # a title
rate = 1.50

[server]   # the server
port = 8080   # web
"quoted key" = 'raw \\ text'
tags = [ 1, 2 ]   # some
inline = { a = 1, b = "c" }

[[world]]
name = "one"   # first

[[world]]
name = "two"
"""


@settings(max_examples=60, deadline=None)
@given(st.data(), documents(null=False), values(null=False))
def test_what_is_set_is_read_back_and_nothing_else_changes(data, document, value):
    text = tomlkit.dumps(document)
    try:
        if not same(tomllib.loads(text), document):
            return  # tomlkit's own trouble
    except tomllib.TOMLDecodeError:
        return
    steps = data.draw(places(document))
    outcome = put(text.encode(), steps, value, create=True)
    assert same(tomllib.loads(outcome.decode()), with_value(document, steps, value)), outcome


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(keys, st.integers() | st.dictionaries(keys, st.booleans())),
    st.dictionaries(keys, st.integers()),
)
def test_a_merge_says_what_both_layers_say(lower, upper):
    outcome = merge(tomlkit.dumps(lower).encode(), tomlkit.dumps(upper).encode())
    assert same(tomllib.loads(outcome.decode()), merged_values(lower, upper)), outcome


@pytest.mark.parametrize(
    ("steps", "value", "old", "new"),
    [
        (("server", "port"), 9, "port = 8080   #", "port = 9   #"),
        (("title",), "8080", 'title = "x"', 'title = "8080"'),
        (("server", "tags", "1"), 3, "[ 1, 2 ]", "[ 1, 3 ]"),
        (("server", "inline", "b"), True, 'b = "c"', "b = true"),
        (("world", "0", "name"), "1st", '"one"', '"1st"'),
        (("server", "quoted key"), "v", "'raw \\ text'", '"v"'),
    ],
)
def test_only_the_value_s_own_text_changes(steps, value, old, new):
    assert put(SAMPLE, steps, value, create=True).decode() == SAMPLE.decode().replace(old, new, 1)


def test_new_keys_and_tables_leave_every_line_that_was_there():
    for steps in [("server", "new"), ("top",), ("fresh", "table", "key"), ("server", "deep", "key")]:
        outcome = put(SAMPLE, steps, 1, create=True).decode()
        lines = iter(outcome.splitlines())
        assert all(line in lines for line in SAMPLE.decode().splitlines() if line)
        assert same(tomllib.loads(outcome), with_value(tomllib.loads(SAMPLE.decode()), steps, 1))


def test_new_lines_end_as_the_file_s_lines_do():
    text = SAMPLE.replace(b"\n", b"\r\n")
    for steps in [("server", "new"), ("top",), ("fresh", "key")]:
        outcome = put(text, steps, 1, create=True)
        assert outcome.count(b"\n") == outcome.count(b"\r\n")
        assert tomllib.loads(outcome.decode()) == with_value(tomllib.loads(SAMPLE.decode()), steps, 1)


def test_a_merge_keeps_the_lower_layer_s_comments():
    outcome = merge(SAMPLE, b"[server]\nport = 1\nmore = 2\n[new]\na = 1\n").decode()
    assert "port = 1   # web" in outcome
    assert outcome.count("#") == SAMPLE.decode().count("#")


def test_a_merge_leaves_the_layout_of_what_both_layers_say():
    lower = b"mask = 0x1F\ntry = [\n  'lobby', # first\n]\n[a]\nb = {c = 'd'}\n"
    assert merge(lower, b"mask = 31\ntry = ['lobby']\n[a.b]\nc = 'd'\n") == lower


@pytest.mark.parametrize(
    ("text", "line"),
    [(b"a = 1\nb = \n", 2), (b"a = 1\na = 2\n", 2), (b"a = \xff", 1), (b"a = " + b"[" * 9000, 0)],
)
def test_a_file_that_does_not_parse_is_named_with_its_line(text, line):
    with pytest.raises(Malformed) as caught:
        put(text, ("a",), 1, create=True)
    assert caught.value.line == line


def test_what_toml_cannot_say_is_refused():
    with pytest.raises(Impossible, match="null"):
        put(SAMPLE, ("a",), [None], create=True)
    with pytest.raises(Impossible, match="no 'nope'"):
        put(SAMPLE, ("nope",), 1, create=False)
    with pytest.raises(Impossible, match="neither"):
        put(SAMPLE, ("title", "x"), 1, create=True)
