"""Which flags can be kept. A node drops what is refused here, with all that came along; better to say so
when the flag is set."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_FLAGS = 64
LONGEST_FLAG = 1024
_GROUP = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?|\*")
_PROGRAM_OPTIONS = ("-jar", "-cp", "-classpath", "--class-path", "-m", "--module")
_PROGRAM_PREFIXES = ("-Djava.class.path", "-Djdk.module.main", "-XX:Flags=", "-XX:VMOptionsFile=")
_TAKES_A_VALUE = (
    "--add-exports",
    "--add-modules",
    "--add-opens",
    "--add-reads",
    "--enable-native-access",
    "--limit-modules",
    "--module-path",
    "--patch-module",
    "--upgrade-module-path",
    "-p",
)


def group_problem(group: str) -> str:
    """Why this cannot be the name of a group; empty when it can."""
    if _GROUP.fullmatch(group):
        return ""
    return f"'{group[:80]}' is no group: 1 to 63 of a-z, 0-9, '.', '_', '-', or '*' for every group"


def flags_problem(flags: Sequence[str]) -> str:
    """What keeps these flags from being used, naming the first bad one; empty when nothing does."""
    if len(flags) > MOST_FLAGS:
        return f"{len(flags)} flags; a group has at most {MOST_FLAGS}"
    problems = (f"'{flag[:80]}' {problem}" for flag in flags if (problem := _problem(flag)))
    return next(problems, "")


def _problem(flag: str) -> str:
    if len(flag.encode("utf-8", "replace")) > LONGEST_FLAG:
        return f"is longer than {LONGEST_FLAG} bytes"
    if not flag.isprintable():
        return "holds characters that nobody sees"
    if flag.startswith("@"):
        return "is a file of arguments; write the arguments themselves"
    if not flag.startswith("-"):
        return "does not begin with '-': Java would take it for the class to run"
    if flag.partition("=")[0] in _PROGRAM_OPTIONS or flag.startswith(_PROGRAM_PREFIXES):
        return "says what is run, and that is for the group to say"
    if flag in _TAKES_A_VALUE:
        return "has its value in the next word; write both in one, with '=' between them"
    return ""
