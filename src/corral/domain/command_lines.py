"""A typed line as the words of a command: in the console, in a script for it, and in a request to execute one."""

from __future__ import annotations

import shlex
from typing import Final

PROGRAM: Final = "corral"


def words_of_line(line: str) -> list[str]:
    """The words, as a shell would split them, without the name of the program that people paste along. None for an empty line
    and for one that begins with `#`; further on a `#` belongs to the command: names of files and lines for a server have them.
    ValueError for an open quote."""
    if line.lstrip().startswith("#"):
        return []
    words = shlex.split(line)
    return words[1:] if words[:1] == [PROGRAM] else words
