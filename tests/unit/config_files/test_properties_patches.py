from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.daemon.config_files.properties import get, merge, put
from corral.daemon.config_files.text_edits import Impossible, Malformed
from corral.daemon.config_files.values import Untyped

SAMPLE = b"""\
#Minecraft server properties
! another kind of comment = not a key
motd=A \\u00a7aserver\\
      \\ goes on
server-port : 25565
level-name world
empty
  white.space\t=\ttabs
caf\xe9=latin
caf\xc3\xa9s=utf
key\\ with\\:signs=x\\=y
"""
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
odd = st.text(st.sampled_from('a\\ =:#!\n\r\t\f"u0é😀\x00'), max_size=12)


@given(
    st.dictionaries((texts | odd).filter(bool), texts | odd, max_size=6),
    (texts | odd).filter(bool),
    texts | odd,
)
def test_what_is_set_is_read_back_and_nothing_else_changes(document, key, value):
    text = b"# head\r\n"
    for name, content in document.items():
        text = put(text, name, content, create=True)
    assert get(text) == document
    outcome = put(text, key, value, create=True)
    assert get(outcome) == document | {key: value}
    assert outcome.startswith(b"# head\r\n")


@given(st.binary(max_size=60), texts.filter(bool), texts)
@example(b"\\", "0", "")
@example(b"a=1\n \\", "0", "")
@example(b"\\\n\\", "0", "")
def test_any_bytes_are_a_file_whose_other_keys_stay(text, key, value):
    text = text.replace(b"\\u", b"")
    before = get(text)
    assert get(put(text, key, value, create=True)) == before | {key: value}


@given(st.dictionaries(odd.filter(bool), odd), st.dictionaries(odd.filter(bool), odd))
def test_a_merge_is_per_key(lower, upper):
    files = []
    for document in (lower, upper):
        files.append(b"")
        for key, value in document.items():
            files[-1] = put(files[-1], key, value, create=True)
    assert get(merge(files[0], files[1])) == lower | upper


def test_a_merge_takes_line_ends_from_the_lower_layer_and_no_byte_order_mark_from_the_upper_one():
    assert merge(b"a=1\nb=2\n", b"\xef\xbb\xbfa=3\\\r\n  4\r\nc=5\r\n") == b"a=3\\\n  4\nb=2\nc=5\n"


def test_every_way_to_write_a_key_is_read_as_java_does():
    assert get(SAMPLE) == {
        "motd": "A §aserver goes on",
        "server-port": "25565",
        "level-name": "world",
        "empty": "",
        "white.space": "tabs",
        "cafés": "utf",
        "café": "latin",
        "key with:signs": "x=y",
    }


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("server-port", 25570, b": 25565", b": 25570"),
        ("motd", "hi", b"A \\u00a7aserver\\\n      \\ goes on", b"hi"),
        ("level-name", "my world", b"world", b"my world"),
        ("empty", True, b"empty", b"empty=true"),
        ("white.space", " x\n", b"tabs\n", b"\\ x\\n\n"),
        ("café", "§", b"latin", b"\\u00a7"),
        ("key with:signs", None, b"x\\=y", b""),
        ("motd", Untyped("8"), b"A \\u00a7aserver\\\n      \\ goes on", b"8"),
    ],
)
def test_only_the_value_s_own_bytes_change(key, value, old, new):
    assert put(SAMPLE, key, value, create=True) == SAMPLE.replace(old, new, 1)


def test_a_new_key_comes_last_in_the_file_s_own_line_ends():
    assert put(b"a=1\r\n", "b", 2, create=True) == b"a=1\r\nb=2\r\n"
    assert put(b"a=1", "b", 2, create=True) == b"a=1\nb=2\n"
    assert put(b"", "b", "x", create=True) == b"b=x\n"
    assert get(put(b"a=1\\", "b", 2, create=True)) == {"a": "1", "b": "2"}


def test_of_a_key_that_is_there_twice_the_last_one_changes():
    assert put(b"a=1\na=2\n", "a", 3, create=True) == b"a=1\na=3\n"


def test_what_properties_cannot_say_is_refused():
    with pytest.raises(Impossible, match="list or a map"):
        put(b"", "a", [1], create=True)
    with pytest.raises(Impossible, match="no key 'a'"):
        put(b"", "a", 1, create=False)
    with pytest.raises(Malformed) as caught:
        put(b"a=1\nb\\u12=2\n", "a", 1, create=True)
    assert caught.value.line == 2
