"""Completion in the console: the words of the tree, options, and names that the controller knows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Final

from click.shell_completion import ShellComplete
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from corral.cli.completion import VARIABLE
from corral.cli.console.known_names import KnownNames
from corral.cli.console.words import HELP
from corral.cli.main import cli
from corral.domain.command_lines import PROGRAM, words_of_line

_MOST: Final = 500
_SPACE: Final = re.compile(r"[ \t\n]")


class NameCompleter(Completer):
    """Never raises and never prints."""

    def __init__(self, names: KnownNames, *, built_in: Sequence[str]) -> None:
        self._names = names
        self._built_in = built_in

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        """What the word before the cursor may become."""
        del complete_event
        before = document.text_before_cursor
        text = _SPACE.split(before)[-1]
        with contextlib.suppress(Exception):  # a prompt is no place for errors
            found = self.candidates(before[: len(before) - len(text)], text)
            return [Completion(each, start_position=-len(text)) for each in found]
        return []

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
