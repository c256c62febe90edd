"""Files with group documents: what is refused in them, and at which cost."""

from __future__ import annotations

import itertools
import os
import pathlib
import resource
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.groups.document_sets import document_digest
from corral.system.document_limits import MOST_BYTES, MOST_VALUES, MalformedDocument
from corral.system.document_sets import documents_in, read_regular, read_set
from corral.testing.counted_calls import counted_calls

YAML_PARTS = (
    *(
        "name: g",
        "a: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n  ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&a ",
        "*a",
        "<<: ",
        "--- ",
        "...\n",
    ),
    *(
        "!!bool ",
        "!!int ",
        "!!float ",
        "!!null ",
        "!!str ",
        "!!timestamp ",
        "!!binary ",
        "!!set ",
        "!!omap ",
        "!!map ",
    ),
    *(
        "!x ",
        "! ",
        "!<",
        "%TAG ! !!\n",
        "%YAML 9.9\n",
        "|\n",
        ">\n",
        "'",
        '"',
        "\\ud800",
        "\\x41",
        "#",
        "\t",
        "\x00",
        "\ufeff",
    ),
    *(
        "abc",
        "-",
        "0b_",
        "0x_",
        "1_",
        "1:30",
        "-.inf",
        ".nan",
        "1.0e+400",
        "9" * 5000,
        "2026-01-01",
        "on",
        "~",
        "=",
        "<<",
    ),
)
JSON_PARTS = (
    *(
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"a"',
        '"name"',
        '"',
        "\\",
        "\\ud800",
        "\\udc00",
        '"\\ud83d\\ude00"',
        "\n",
        " ",
    ),
    *(
        "1",
        "-",
        "1e400",
        "-1e400",
        "1.5",
        "9" * 5000,
        "NaN",
        "Infinity",
        "-Infinity",
        "null",
        "true",
        "\x00",
        "\ufeff",
    ),
)


def read(file: str, text: str) -> None:
    """Documents that can be stored, or the refusal of the file: nothing else."""
    try:
        found = documents_in(file, text)
    except MalformedDocument:
        return
    for each in found:
        document_digest({"body": each.body})


@settings(max_examples=200)
@given(st.one_of(st.text(), st.lists(st.sampled_from(YAML_PARTS), max_size=30).map("".join)))
def test_any_yaml_has_documents_or_is_refused(text: str) -> None:
    read("a.yaml", text)


@settings(max_examples=200)
@given(st.one_of(st.text(), st.lists(st.sampled_from(JSON_PARTS), max_size=30).map("".join)))
def test_any_json_has_documents_or_is_refused(text: str) -> None:
    read("a.json", text)
    read("-", text)


@given(st.sampled_from((".yaml", ".json")), st.binary())
def test_any_file_has_documents_or_is_listed(suffix: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, f"a{suffix}")
        file.write_bytes(content)
        found = read_set((directory,), may_be_empty=True)
    for each in found.faults:
        assert each.path.startswith(str(file))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("!!bool abc", "'abc' is no value of '!!bool'"),
        ('!!int ""', "'' is no value of '!!int'"),
        ('!!int "-"', "'-' is no value of '!!int'"),
        ("0x_", "'0x_' is no value of '!!int'"),
        ('!!float ""', "'' is no value of '!!float'"),
        ("!!timestamp abc", "the tag '!!timestamp'"),
        ("!!set {a}", "the tag '!!set'"),
        ("!mine x", "the tag '!mine'"),
        ("1.0e+400", "the number 1.0e.400 is larger"),
        (".nan", ".nan is a value that JSON does not have"),
        ("9" * 5000, "is larger than numbers"),
        ("18446744073709551616", "is larger than numbers"),
        ('"\\ud800"', "invalid Unicode character escape code"),
        ("*lost", "'\\*lost' refers to nothing before it"),
        ("&a [*a]", "'\\*a' refers to nothing before it"),
        ("{1: a}", "a key is no text"),
        ("{[a]: b}", "a key is no text"),
        ("{a: 1, a: 2}", "the key 'a' stands twice"),
        ("{<<: 1}", "'<<' is followed by an object"),
        ("[" * 100 + "]" * 100, "nested more than 60 levels"),
        ("\x01", "it is not YAML"),
    ],
)
def test_a_value_that_is_no_json_is_refused_with_its_line(value: str, reason: str) -> None:
    with pytest.raises(MalformedDocument, match=reason) as refused:
        documents_in("a.yaml", f"name: lobby\nenv:\n  A: {value}\n")
    assert refused.value.line == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1e400", "the number 1e400 is larger"),
        ("-1e400", "the number -1e400 is larger"),
        ("NaN", "NaN is a value that JSON"),
        ("-Infinity", "-Infinity is a value that JSON"),
        ("9" * 5000, "is larger than numbers"),
        ('"\\ud800"', "is half a character"),
        ('"\\ud83d\\ude00 \\udc00"', "'.udc00' is half a character"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' stands twice"),
        ("[" * 100 + "]" * 100, "nested more than 60 levels"),
        ("[", "it is not JSON"),
    ],
)
def test_json_that_others_read_differently_is_refused_with_its_line(value: str, reason: str) -> None:
    text = f'{{"name": "lobby 1e400 NaN -Infinity",\n"env":\n{value}}}'
    with pytest.raises(MalformedDocument, match=reason) as refused:
        documents_in("a.json", text)
    assert refused.value.line == 3


def test_what_a_text_means_stays() -> None:
    text = """\
name: &name lobby
on: off
env: &env {A: "1", B: *name, C: 2026-01-01, D: =, "<<": text}
more: {<<: [*env, {A: "2", E: 1:30}], B: own}
numbers: [0, 012, 0x1F, 0b11, -5, 1_000, 1.5, 18446744073709551615, 1e3]
nothing: [~, null, ]
empty:
flag: !!str yes
emoji: "\\U0001F600"
"""
    (found,) = documents_in("a.yaml", f"---\n{text}---\n~\n---\n")
    env = {"A": "1", "B": "lobby", "C": "2026-01-01", "D": "=", "<<": "text"}
    assert found.body == {
        "name": "lobby",
        "on": False,
        "env": env,
        "more": {**env, "E": 90, "B": "own"},
        "numbers": [0, 10, 31, 3, -5, 1000, 1.5, 18446744073709551615, "1e3"],
        "nothing": [None, None],
        "empty": None,
        "flag": "yes",
        "emoji": "\U0001f600",
    }
    assert (found.lines["name"], found.lines["flag"]) == (2, 9)
    (found,) = documents_in("a.json", '{"name": "\\ud83d\\ude00", "numbers": [0, -5, 1.5, 1e3]}')
    assert found.body == {"name": "\U0001f600", "numbers": [0, -5, 1.5, 1000.0]}


def test_a_key_that_stands_twice_is_found_in_one_pass() -> None:
    calls = []
    for size in (100, 1000):
        keys = [*(f"k{number}" for number in range(size)), "again", "again"]
        text = "{" + ", ".join(f'"{key}": 1' for key in keys) + "}"
        with counted_calls() as count, pytest.raises(MalformedDocument, match="'again' stands twice"):
            documents_in("a.json", text)
        calls.append(count.calls)
    assert calls[1] < 12 * calls[0], "no key is looked up among the others"


LARGE = {
    "references.yaml": 'name: g\nargs: [&a "' + "x" * 100_000 + '"' + ", *a" * 20_000 + "]\n",
    "references of references.yaml": 'name: g\nenv:\n  a: &a "'
    + "x" * 1000
    + '"\n'
    + "".join(
        f"  {after}: &{after} [{', '.join([f'*{before}'] * 20)}]\n"
        for before, after in itertools.pairwise("abcdef")
    ),
    "merged.yaml": "a: &a {"
    + ", ".join(f"k{number}: 1" for number in range(5000))
    + "}\nb:\n"
    + "- <<: *a\n" * 100,
    "objects.yaml": "args: [" + "{}," * 300_000 + "1]\n",
    "values.json": '{"args": [' + "[]," * 300_000 + "1]}",
    "documents.yaml": "--- a\n" * 300_000,
    "directives.yaml": "".join(f"%TAG !a{number}! b\n" for number in range(200_000)) + "--- a\n",
}


@pytest.mark.parametrize("name", LARGE)
def test_what_becomes_large_is_refused_before_it_takes_memory(name: str) -> None:
    documents_in("a.yaml", "name: g")
    text = LARGE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedDocument, match="more than"):
        documents_in(name, text)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) * 1024 < 8 * MOST_BYTES


def test_signs_within_text_are_no_values() -> None:
    (found,) = documents_in("a.json", '{"name": "' + '[,\\"{' * 100_000 + '"}')
    assert len(found.body["name"]) == 400_000


def test_files_that_have_too_much_together_are_listed(tmp_path: pathlib.Path) -> None:
    many = "[" + "1," * 990 + "1]"
    for number in range(4):
        text = f"name: g{number}\nargs: [&a {many}" + ", *a" * (MOST_VALUES // 1000) + "]\n"
        (tmp_path / f"{number}.yaml").write_text(text)
    (tmp_path / "9.yaml").write_bytes(b"#" * (MOST_BYTES + 1))
    found = read_set((str(tmp_path),))
    assert [each.body["name"] for each in found.documents] == ["g0", "g1", "g2"]
    assert [pathlib.Path(each.path).name for each in found.faults] == ["3.yaml", "9.yaml"]
    assert "the files before it have" in found.faults[0].message
    assert "8 MiB" in found.faults[1].message


def test_long_texts_are_counted_through_references(tmp_path: pathlib.Path) -> None:
    for number in range(3):
        text = f'name: g{number}\nargs: [&a "{"x" * 100_000}"' + ", *a" * 50 + "]\n"
        (tmp_path / f"{number}.yaml").write_text(text)
    found = read_set((str(tmp_path),))
    assert [pathlib.Path(each.path).name for each in found.faults] == ["2.yaml"]


def test_a_directory_is_no_file_and_is_closed(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MalformedDocument, match="no regular file"):
        read_regular(str(tmp_path))


def test_names_of_files_are_shown_in_one_line_of_text(tmp_path: pathlib.Path) -> None:
    for name in (b"a\nb.yaml", b"\xff.yaml", b"\x1b[2J.yaml"):
        path = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        path.write_text("name: [" if name.startswith(b"a") else "name: g\n")
    found = read_set((str(tmp_path),))
    shown = {each.path for each in [*found.documents, *found.faults]}
    assert shown == {f"{tmp_path}/{name}" for name in ("a\\nb.yaml:1", "\\udcff.yaml", "\\x1b[2J.yaml")}
    assert all(pathlib.Path(each.file).exists() for each in [*found.documents, *found.faults])


def test_a_file_that_becomes_too_large_takes_no_room_from_the_others(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text(LARGE["references.yaml"])
    (tmp_path / "b.yaml").write_text("name: g\n")
    found = read_set((str(tmp_path),))
    assert [pathlib.Path(each.path).name for each in found.faults] == ["a.yaml:2"]
    assert [each.body for each in found.documents] == [{"name": "g"}]
