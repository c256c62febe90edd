"""Lines as the words of a command."""

from __future__ import annotations

import pytest

from corral.domain.command_lines import words_of_line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("   ", []),
        ("# a comment", []),
        ("  #instance rm lobby-1 world", []),
        ("corral instance list", ["instance", "list"]),
        ("instance rm lobby-1 --yes backup#2", ["instance", "rm", "lobby-1", "--yes", "backup#2"]),
        (
            "instance exec lobby-1 say issue#5 is #1",
            ["instance", "exec", "lobby-1", "say", "issue#5", "is", "#1"],
        ),
        ("instance cat a 'a  b' #c", ["instance", "cat", "a", "a  b", "#c"]),
    ],
)
def test_a_line_is_split_as_by_a_shell_and_a_sharp_is_no_comment_within_it(
    line: str, words: list[str]
) -> None:
    assert words_of_line(line) == words


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(ValueError, match="quotation"):
        words_of_line("instance cat a 'b")
