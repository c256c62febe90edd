"""Completion in the console: the words of the tree, options, and names that the controller knows."""

from __future__ import annotations

import contextlib
import readline
from collections.abc import Sequence
from typing import Final

from click.shell_completion import ShellComplete

from corral.cli.completion import VARIABLE
from corral.cli.console.known_names import KnownNames
from corral.cli.console.words import HELP
from corral.cli.main import cli
from corral.domain.command_lines import PROGRAM, words_of_line

_MOST: Final = 500


class Completer:
    """Called by readline: `completer(text, 0)`, then 1, 2, … until it returns None. Never raises and never prints."""

    def __init__(self, names: KnownNames, *, built_in: Sequence[str]) -> None:
        self._names = names
        self._built_in = built_in
        self._found: list[str] = []

    def install(self) -> None:
        readline.set_completer(self)
        readline.set_completer_delims(" \t\n")
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind("set show-all-if-ambiguous on")
        readline.parse_and_bind("set enable-bracketed-paste on")

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            self._found = []
            with contextlib.suppress(Exception):  # a prompt is no place for errors
                self._found = self.candidates(readline.get_line_buffer()[: readline.get_begidx()], text)
        return self._found[state] if state < len(self._found) else None

    def candidates(self, before: str, text: str) -> list[str]:
        """What `text` may become after these words."""
        words = words_of_line(before)
        if words[:1] == [HELP]:
            words = words[1:]
        search = ShellComplete(cli, {"obj": {"names": self._names}}, PROGRAM, VARIABLE)
        found = [item.value for item in search.get_completions(words, text) if item.type == "plain"]
        if not words:
            extra = [*self._built_in, *(name.split()[0] for name in self._names.commands())]
            found += [each for each in extra if each.startswith(text) and not text.startswith("-")]
        unique = list(dict.fromkeys(found))[:_MOST]
        return [f"{each} " for each in unique] if len(unique) == 1 else unique
