from __future__ import annotations

import json

import pytest
from config_documents import documents, merged_values, places, same, values, with_value
from hypothesis import given
from hypothesis import strategies as st

from corral.daemon.config_files.json_text import merge, put
from corral.daemon.config_files.text_edits import Impossible, Malformed

layouts = st.sampled_from([None, 0, 1, 4, "\t"])


@given(st.data(), documents(), values(), layouts, st.booleans())
def test_what_is_set_is_read_back_and_nothing_else_changes(data, document, value, indent, crlf):
    text = json.dumps(document, indent=indent, ensure_ascii=crlf).replace("\n", "\r\n" if crlf else "\n")
    steps = data.draw(places(document))
    outcome = put(text.encode(), steps, value, create=True)
    assert same(json.loads(outcome), with_value(document, steps, value)), outcome


@given(documents(), documents(), layouts)
def test_a_merge_says_what_both_layers_say(lower, upper, indent):
    outcome = merge(json.dumps(lower, indent=indent).encode(), json.dumps(upper).encode())
    assert same(json.loads(outcome), merged_values(lower, upper)), outcome


def test_numbers_and_layout_elsewhere_keep_every_byte():
    text = b'{ "big": 12345678901234567890.10,\n   "e": 1E400 ,"a":\t{"x" : [ 1,2 ]}}\n'
    assert put(text, ("a", "x", "1"), "two", create=True) == text.replace(b"1,2", b'1,"two"')
    assert merge(text, b'{"e": 1.10}') == text.replace(b"1E400", b"1.10")


def test_a_new_entry_is_laid_out_as_its_neighbours_are():
    assert (
        put(b'{\n    "a": 1\n}\n', ("b",), [1], create=True)
        == b'{\n    "a": 1,\n    "b": [\n        1\n    ]\n}\n'
    )
    assert put(b'{\n\t"a": {}\n}', ("a", "b"), {"c": 1}, create=True) == (
        b'{\n\t"a": {\n\t\t"b": {\n\t\t\t"c": 1\n\t\t}\n\t}\n}'
    )
    assert put(b'{"a":1,"c":2}', ("b",), [1, 2], create=True) == b'{"a":1,"c":2,"b":[1, 2]}'
    assert put(b"", ("a", "b"), 1, create=True) == b'{\n  "a": {\n    "b": 1\n  }\n}\n'
    assert put(b"[1]", ("1",), 2, create=True) == b"[1, 2]"


def test_a_merge_ends_all_lines_as_the_lower_layer_does():
    lower = b'{\r\n  "a": 1\r\n}\r\n'
    assert merge(lower, b'{"a": [\n1],\n"b": {\n}}\n') == b'{\r\n  "a": [\r\n1],\r\n  "b": {\r\n}\r\n}\r\n'


def test_of_a_key_that_is_there_twice_the_last_one_changes():
    assert put(b'{"a": 1, "a": 2}', ("a",), 3, create=True) == b'{"a": 1, "a": 3}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'{\n"a": 1,\n}', 3),
        (b'{"a": 1}\n\nx', 3),
        (b'{"a": NaN}', 1),
        (b"{'a': 1}", 1),
        (b'{"a": "\n"}', 1),
        (b'{"a" 1}', 1),
        (b'{"a": 01}', 1),
        (b'{"a": \xff}', 1),
        (b"\n" + b"[" * 100_000, 2),
        (b'{"a": "open', 1),
    ],
)
def test_a_file_that_does_not_parse_is_named_with_its_line(text, line):
    with pytest.raises(Malformed) as caught:
        put(text, ("a",), 1, create=True)
    assert caught.value.line == line


def test_what_json_cannot_say_is_refused():
    with pytest.raises(Impossible):
        put(b"{}", ("a",), float("inf"), create=True)
    with pytest.raises(Impossible, match="no 'a'"):
        put(b"{}", ("a",), 1, create=False)
    with pytest.raises(Impossible, match="neither"):
        put(b'{"a": 1}', ("a", "b"), 1, create=True)
    with pytest.raises(Impossible, match="list of 1"):
        put(b"[1]", ("1",), 1, create=False)
