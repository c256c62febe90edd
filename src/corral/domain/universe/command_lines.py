"""Command lines as lists of arguments: split at spaces where no shell would do more, else left to a shell."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SHELL: Final = ("/bin/sh", "-c")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./\- \t]|[^\x00-\x7f]")
_SHELL_WORDS: Final = frozenset(
    [
        ".",
        ":",
        "alias",
        "bg",
        "break",
        "case",
        "cd",
        "command",
        "continue",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "fc",
        "fg",
        "fi",
        "for",
        "getopts",
        "hash",
        "if",
        "in",
        "jobs",
        "read",
        "readonly",
        "return",
        "set",
        "shift",
        "source",
        "then",
        "time",
        "times",
        "trap",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
    ]
)
"""First words that only a shell understands, or that change what follows."""


class UniverseCommand(NamedTuple):
    arguments: list[str]
    shell_because: str
    """What needs a shell; empty: nothing does."""


def split_command(line: str) -> UniverseCommand:
    """The arguments of a command line. A line with quotes, variables of the shell, redirections and the like is one
    argument of `/bin/sh -c`."""
    found = next((sign for sign in line if _PLAIN.fullmatch(sign) is None), "")
    words = line.split()
    if found:
        because = "a line break" if found in "\r\n" else repr(found)
    elif words and ("=" in words[0] or words[0] in _SHELL_WORDS):
        because = f"'{words[0]}'"
    else:
        return UniverseCommand(words, "")
    return UniverseCommand([*SHELL, line.strip()], because)
