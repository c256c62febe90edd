"""Patterns from outside."""

from __future__ import annotations

import pytest

from corral.domain.patterns import (
    PATTERN_MAX,
    check_template,
    compile_bytes,
    compile_pattern,
)
from corral.errors import Code, Rejected


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$", "(.*)*x", "(a?){30}a{30}b"])
def test_a_pattern_that_explodes_elsewhere_answers_at_once(pattern):
    text = "a" * 100_000 + "!"
    assert (
        compile_pattern(pattern, field="pattern").search(text) is None
    )  # elsewhere: not within a test's time
    assert compile_bytes(pattern, field="pattern").search(text.encode()) is None


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "(",
        "a{2000}",
        "(?=a)",
        r"(a)\1",
        "[",
        "*",
        "x" * (PATTERN_MAX + 1),
        "\ud800",
        "((a{100}){100}){100}",
    ],
)
def test_what_is_no_pattern_of_re2_is_refused_with_its_field(bad):
    for compiled in (compile_pattern, compile_bytes):
        with pytest.raises(Rejected) as caught:
            compiled(bad, field="probes/0/pattern")
        assert (caught.value.code, caught.value.field) == (Code.INVALID_PATTERN, "probes/0/pattern")
        assert len(caught.value.message) < 500


def test_with_multiline_the_ends_are_those_of_a_line_and_no_bracket_escapes():
    assert compile_pattern("^b$", multiline=True).search("a\nb\nc") is not None
    assert compile_pattern("^b$").search("a\nb\nc") is None
    with pytest.raises(Rejected):
        compile_pattern("a)(b", multiline=True)


def test_bytes_need_not_be_utf_8():
    assert compile_bytes(r"Done \(").search(b"\xff\xfe Done (3s)") is not None


@pytest.mark.parametrize(
    ("pattern", "template"),
    [
        ("(a)(b)", r"\2\1"),
        ("(?P<key>a)", r"\g<key> \g<1>"),
        ("b", r"\\1"),
        ("b", r"C:\new\x"),
        ("b", r"<\0>"),
    ],
)
def test_a_template_may_name_the_groups_there_are_and_hold_other_backslashes(pattern, template):
    check_template(compile_pattern(pattern), template, field="value")


@pytest.mark.parametrize("template", [r"\1", r"\g<name>", r"\g<7>"])
def test_a_template_with_a_group_that_is_not_there_is_refused(template):
    with pytest.raises(Rejected) as caught:
        check_template(compile_pattern("a"), template, field="patches/0/value")
    assert caught.value.field == "patches/0/value"


@pytest.mark.trap("T42")
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [(r"\pL{400}", "too large"), (r"\pL{30}", "too large"), (r"\pL" * 300, "more than 20 classes")],
)
def test_a_pattern_that_is_long_in_the_compiling_is_refused(pattern, reason):
    with pytest.raises(Rejected, match=reason):
        compile_pattern(pattern)


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", [r"\pL" * 20, ".{1000}", "(.*)" * 250])
def test_a_pattern_that_is_compiled_is_small(pattern):
    assert compile_pattern(pattern).programsize < 25_000
