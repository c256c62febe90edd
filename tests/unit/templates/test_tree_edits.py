"""Trees are edited without ever holding a file beneath a file."""

from __future__ import annotations

import pytest

from corral.controller.templates.tree_builder import TreeLimits, find_file, overlay, put_file, remove_path
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Rejected

LIMITS = TreeLimits(max_bytes=100, max_files=4)


def a_file(path: str, *, size: int = 1, mark: str = "0") -> TemplateFile:
    return TemplateFile(path=path, mode=0o644, size=size, digest=mark * 64)


def a_tree(*paths: str, directories: tuple[str, ...] = ()) -> TemplateManifest:
    return TemplateManifest(files=tuple(a_file(path) for path in sorted(paths)), directories=directories)


def paths(manifest: TemplateManifest) -> list[str]:
    return [file.path for file in manifest.files]


def test_a_file_is_added_in_its_place_and_fills_its_directory() -> None:
    tree = put_file(a_tree("c", directories=("d", "e")), a_file("d/x"), LIMITS)
    assert paths(tree) == ["c", "d/x"]
    assert tree.directories == ("e",)
    tree = put_file(tree, a_file("b", mark="1"), LIMITS)
    assert paths(tree) == ["b", "c", "d/x"]


def test_a_file_is_replaced() -> None:
    tree = put_file(a_tree("a"), a_file("a", mark="1"), LIMITS)
    assert find_file(tree, "a").digest == "1" * 64


@pytest.mark.trap("T26")
@pytest.mark.parametrize(("there", "new"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b")])
def test_no_file_comes_to_lie_beneath_a_file(there: str, new: str) -> None:
    with pytest.raises(Rejected) as refused:
        put_file(a_tree(there), a_file(new), LIMITS)
    assert refused.value.code is Code.PATH_REFUSED


def test_a_file_does_not_take_the_place_of_an_empty_directory() -> None:
    with pytest.raises(Rejected):
        put_file(a_tree(directories=("a/b",)), a_file("a/b"), LIMITS)


def test_limits_hold_for_edits_too() -> None:
    for tree, file in ((a_tree("a"), a_file("b", size=100)), (a_tree(*"abcd"), a_file("e"))):
        with pytest.raises(Rejected) as refused:
            put_file(tree, file, LIMITS)
        assert refused.value.code is Code.ARCHIVE_TOO_LARGE


def test_a_file_or_an_empty_directory_is_removed() -> None:
    tree = remove_path(a_tree("a", "d/x", directories=("e",)), "d/x")
    assert (paths(tree), tree.directories) == (["a"], ("e",))
    assert remove_path(tree, "e").directories == ()
    with pytest.raises(Rejected) as refused:
        remove_path(a_tree("server.properties"), "server.propertys")
    assert refused.value.code is Code.NOT_FOUND
    assert refused.value.hint == "did you mean 'server.properties'?"


def test_the_upper_tree_wins() -> None:
    upper = TemplateManifest(files=(a_file("b", mark="1"), a_file("d/x")))
    tree = overlay(a_tree("a", "b", directories=("d",)), upper, LIMITS)
    assert paths(tree) == ["a", "b", "d/x"]
    assert find_file(tree, "b").digest == "1" * 64
    assert tree.directories == ()
