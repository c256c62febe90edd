"""Guides as a list of blocks, each with the notes that stand above it in the page.

A note is a comment that a reader does not see, on a line of its own right above a block:

    <!-- not run: REASON -->        a block that no test can execute
    <!-- prepare: COMMAND -->       what a reader has already, and the machine of the test has not
    <!-- exit: NUMBER -->           how the block's last command ends, where that is not 0
    <!-- varies: WORD WORD -->      words of an output that are others each time
    <!-- Ctrl-C: COMMAND -->        an output that comes when this command is interrupted
    <!-- part of: KIND -->          YAML that is a piece of a `group`, or of the `controller` or `daemon` configuration
    <!-- into: FILE, above: TEXT --> a piece for a file: `above` or `below` the only line with TEXT, or `at the end`
    <!-- needs: make up -->         of a whole page: what runs already

Everything else is executed or compared as it is printed.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Final, NamedTuple

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
NOTES: Final = frozenset({"not run", "prepare", "exit", "varies", "Ctrl-C", "part of", "into", "needs"})
KINDS: Final = frozenset({"sh", "", "yaml", "python", "sql"})
_BLOCK: Final = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```(\w*)\n(.*?)^```$", flags=re.M | re.S)
_NOTE: Final = re.compile(r"<!-- ([^:>]+): (.+?) -->")
_HEREDOC: Final = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")


class Block(NamedTuple):
    line: int
    kind: str
    text: str
    notes: dict[str, str]


def blocks_of(page: pathlib.Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(text.count("\n", 0, found.start(2)) + 1, found[2], found[3], notes_in(found[1]))
        for found in _BLOCK.finditer(text)
    ]


def notes_in(comments: str) -> dict[str, str]:
    notes = dict(_NOTE.findall(comments))
    assert notes.keys() <= NOTES, f"unknown notes: {sorted(notes.keys() - NOTES)}"
    assert len(notes) == comments.count("<!--"), f"not a note, or one twice: {comments}"
    return notes


def commands_of(script: str) -> Iterator[str]:
    """Each command of a block, with its continued lines and its here-documents."""
    waiting: list[str] = []
    ends: list[str] = []
    for line in script.splitlines():
        waiting.append(line)
        ends = ends[line.strip() == ends[0] :] if ends else _HEREDOC.findall(line)
        command = "\n".join(waiting)
        if not ends and not line.endswith("\\") and _whole(command):
            if command.strip() and not command.strip().startswith("#"):
                yield command
            waiting = []
    assert not waiting, f"a block ends within a command: {waiting}"


def _whole(command: str) -> bool:
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0
