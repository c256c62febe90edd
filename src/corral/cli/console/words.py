"""A line of the console as the words of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from corral.cli.failure import WrongUsage
from corral.domain.command_lines import words_of_line

HELP: Final = "help"


def words_of(line: str) -> list[str]:
    """The words; none for an empty line and for a comment."""
    try:
        return words_of_line(line)
    except ValueError as error:
        raise WrongUsage(
            f"the line cannot be read: {error}".lower(),
            hint="close the quotes, or write a backslash before one",
        ) from None


def with_help(words: Sequence[str]) -> list[str]:
    """`help instance stop` is `instance stop --help`."""
    return [*words[1:], "--help"] if words[:1] == [HELP] else list(words)
