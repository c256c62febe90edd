"""Paths of module routes: which are none, which match, which goes first."""

from __future__ import annotations

import pytest

from corral.modules.services.route_table import PathPattern


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("/items", "/items", {}),
        ("/items", "/items/", None),
        ("/items", "/item", None),
        ("/items/{id}", "/items/7", {"id": "7"}),
        ("/items/{id}", "/items/", None),
        ("/items/{id}", "/items/7/x", None),
        ("/files/{rest:path}", "/files/a/b/c", {"rest": "a/b/c"}),
        ("/files/{rest:path}", "/files/", {"rest": ""}),
        ("/{a}/x/{b}", "/1/x/2", {"a": "1", "b": "2"}),
    ],
)
def test_a_pattern_matches_whole_segments(pattern: str, path: str, found: dict[str, str] | None) -> None:
    assert PathPattern(pattern).match(path) == found


@pytest.mark.parametrize(
    "pattern",
    [
        "items",
        "",
        "/items/",
        "/a//b",
        "/x{id}",
        "/{id}y",
        "/{1}",
        "/{a}/{a}",
        "/{a:path}/b",
        "/{a:int}",
        "/a/../b",
        "/" + "a/" * 30 + "b",
        "/" + "a" * 400,
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PathPattern(pattern)


def test_two_patterns_for_the_same_paths_have_one_shape() -> None:
    assert PathPattern("/a/{x}").shape == PathPattern("/a/{y}").shape
    assert PathPattern("/a/{x}").shape != PathPattern("/a/{x:path}").shape


def test_the_most_exact_pattern_comes_first() -> None:
    texts = ["/{any:path}", "/a/{rest:path}", "/{x}/b", "/a/{y}", "/a/b"]
    ordered = sorted((PathPattern(text) for text in texts), key=lambda pattern: pattern.rank)
    assert [pattern.text for pattern in ordered] == [
        "/a/b",
        "/a/{y}",
        "/a/{rest:path}",
        "/{x}/b",
        "/{any:path}",
    ]
