"""Paths and globs from outside."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.file_paths import Globs, beneath, check_glob, check_path, globs
from corral.errors import Code, Rejected


@pytest.mark.parametrize(
    "good", ["a", "a/b", ".hidden", "a b/ü.yml", "..a/b..", "x" * 255, "a/[b]*?", "$(rm)/-rf"]
)
def test_relative_paths_are_taken_as_they_are(good):
    assert check_path(good) == good


@pytest.mark.parametrize(
    "bad",
    [
        "", "/", "/etc/passwd", "..", "../a", "a/../b", "a/..", ".", "./a", "a/./b", "a//b", "a/", "a\0b", "a\nb",
        "a\\b", "C:\\x", "\x7f", "\x85", "\ud800", "x" * 256, "ü" * 128, "/".join(["abcdefgh"] * 500),
    ],
)  # fmt: skip
def test_everything_that_could_leave_the_tree_or_confuse_is_refused(bad):
    with pytest.raises(Rejected) as caught:
        check_path(bad, field="file")
    assert (caught.value.code, caught.value.field) == (Code.PATH_REFUSED, "file")
    assert len(caught.value.message) < 700
    if not bad.endswith("a/"):
        with pytest.raises(Rejected):
            check_glob(bad, field="file")


@pytest.mark.parametrize("bad", ["a**", "**a/b", "a/***"])
def test_two_stars_stand_alone(bad):
    with pytest.raises(Rejected, match="stands alone"):
        check_glob(bad)


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.yml", "a.yml", True),
        ("*.yml", "d/a.yml", False),
        ("**/*.yml", "a.yml", True),
        ("**/*.yml", "x/y/a.yml", True),
        ("plugins/**/config.yml", "plugins/config.yml", True),
        ("plugins/**/config.yml", "plugins/a/b/config.yml", True),
        ("plugins/**/config.yml", "other/config.yml", False),
        ("world", "world", True),
        ("world", "world/region/r.0.0.mca", True),
        ("world", "world2/level.dat", False),
        ("world*", "world_nether/level.dat", True),
        ("world/", "world", False),
        ("world/", "world/level.dat", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("**", "x/y", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "/.txt", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[!a-c]x", "dx", True),
        ("a[+-9]b", "a/b", False),
        ("a[!b]c", "a/c", False),
        ("[", "[", True),
        ("[z-a]", "[z-a]", True),
        ("[]]", "]", True),
        ("[!]]", "x", True),
        ("[!]]", "]", False),
        ("[!]", "[!]", True),
        ("[!]", "!", False),
        ("a.b", "axb", False),
        ("a+(b)", "a+(b)", True),
        ("ü?", "üä", True),
        ("*", "\udcff.dat", True),
    ],
)
def test_globs_by_example(glob, path, expected):
    assert Globs([glob]).matches(path) is expected


def test_none_match_nothing_and_several_are_one_question():
    assert not Globs(())
    assert not Globs(()).matches("a")
    both = globs(("*.yml", "world/"))
    assert both
    assert both.matches("a.yml")
    assert both.matches("world/x")
    assert not both.matches("a.txt")
    assert globs(("*.yml", "world/")) is both


def reference(glob: str, path: str) -> bool:
    """The same meaning, part by part: slow and obvious."""
    only_beneath = glob.endswith("/")
    wanted, parts = glob.removesuffix("/").split("/"), path.split("/")

    def match(w: list[str], p: list[str]) -> bool:
        if not w:
            return bool(p) if only_beneath else True
        if w[0] == "**":
            if len(w) == 1:
                return len(p) >= (2 if only_beneath else 1)
            return any(match(w[1:], p[n:]) for n in range(len(p) + 1))
        return bool(p) and re.match(fnmatch.translate(w[0]), p[0]) is not None and match(w[1:], p[1:])

    return match(wanted, parts)


_WORDS = st.text(st.sampled_from("ab.*?"), min_size=1, max_size=3).filter(
    lambda part: "**" not in part and part not in (".", "..")
)
_GLOBS = st.builds(
    lambda parts, slash: "/".join(parts) + slash,
    st.lists(st.one_of(_WORDS, st.just("**")), min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
)
_PATHS = st.lists(
    st.text(st.sampled_from("ab."), min_size=1, max_size=3).filter(lambda part: part not in (".", "..")),
    min_size=1,
    max_size=4,
).map("/".join)


@given(_GLOBS, _PATHS)
def test_globs_mean_what_the_reference_means(glob, path):
    assert Globs([check_glob(glob)]).matches(path) is reference(glob, path)


def test_beneath_looks_at_whole_parts():
    assert beneath("a", "a")
    assert beneath("a/b", "a")
    assert not beneath("ab", "a")


def test_more_globs_than_one_expression_holds_are_asked_one_by_one():
    many = Globs([check_glob(f"{n}/" + "?" * 32) for n in range(1000)])
    assert many.matches("999/" + "ü" * 32)
    assert not many.matches("1000/x")


def test_a_glob_of_nothing_but_wildcards_is_refused():
    with pytest.raises(Rejected, match="wildcards"):
        check_glob("/".join(["?" * 200] * 15))
