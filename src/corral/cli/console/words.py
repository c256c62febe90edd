"""A line of the console as the words of a command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from corral.cli.failure import WrongUsage

PROGRAM: Final = "corral"
HELP: Final = "help"


def words_of(line: str) -> list[str]:
    """The words, as a shell would split them, without the name of the program that people paste along; none for an empty
    line and for a comment."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise WrongUsage(
            f"the line cannot be read: {error}".lower(),
            hint="close the quotes, or write a backslash before one",
        ) from None
    return words[1:] if words[:1] == [PROGRAM] else words


def with_help(words: Sequence[str]) -> list[str]:
    """`help instance stop` is `instance stop --help`."""
    return [*words[1:], "--help"] if words[:1] == [HELP] else list(words)
