"""An instance's console on a terminal: its text made harmless, and one line of input below it.

The editor is given what the terminal sends and returns what to show; it reads and writes nothing itself.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from corral.cli.terminal.table import text_width

_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_BEGUN: Final = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,64})?|\r)\Z")
_STEERS: Final = re.compile(
    r"[^\n\t -~\u00a0-\U0010ffff]|[\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]"
)


class Neutraliser:
    """Takes text in pieces. Colours are dropped, everything else that would steer the terminal is spelt
    out; a sequence that is cut between two pieces is put together first."""

    def __init__(self) -> None:
        self._begun = ""

    def clean(self, text: str) -> str:
        text = self._begun + text
        cut = _BEGUN.search(text)
        self._begun = cut[0] if cut else ""
        if cut:
            text = text[: cut.start()]
        return neutral(text)

    def rest(self) -> str:
        """The text that was held back, when nothing more comes."""
        rest, self._begun = self._begun, ""
        return neutral(rest)


class NeutralBytes:
    """Writes bytes that are text, as UTF-8, made harmless: files of instances are written by others."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._neutral = Neutraliser()

    def write(self, data: bytes) -> None:
        self._write(self._neutral.clean(self._decoder.decode(data)))

    def close(self) -> None:
        """Write what was held back."""
        self._write(self._neutral.clean(self._decoder.decode(b"", final=True)) + self._neutral.rest())


def neutral(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _STEERS.sub(lambda found: repr(found[0])[1:-1], text)


def gap_text(gap: dict[str, Any]) -> str:
    """The missing part and the reason, for people. Where the reason is `unknown` the size is, too."""
    missing = int(gap["to_offset"]) - int(gap["from_offset"])
    if not missing or gap.get("late"):
        what = (
            f"{missing} bytes at {gap['from_offset']}" if missing else f"what follows at {gap['from_offset']}"
        )
        return f"{what}: {gap['reason']}" + (
            " (late: it is shown when it arrives)" if gap.get("late") else ""
        )
    if gap["reason"] == "unknown":
        return f"an unknown number of bytes is missing at {gap['from_offset']}: nothing was left that could store it"
    return f"{missing} bytes at {gap['from_offset']} are missing: {gap['reason']}"


_DETACH: Final = {"\x03", "\x1d"}  # Ctrl-C, Ctrl-]
_ESCAPES: Final = {
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[A": "older",
    "\x1bOA": "older",
    "\x1b[B": "newer",
    "\x1bOB": "newer",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b[3~": "delete",
}
_KEYS: Final = {
    "\x01": "home",
    "\x05": "end",
    "\x02": "left",
    "\x06": "right",
    "\x10": "older",
    "\x0e": "newer",
    "\x7f": "erase",
    "\x08": "erase",
    "\x15": "erase_to_start",
    "\x0b": "erase_to_end",
    "\x17": "erase_word",
}
_LONGEST_ESCAPE: Final = 8
_HISTORY: Final = 500


class LineEditor:
    """`text` with a cursor; `detached` once the person wants to go."""

    def __init__(self, history: Sequence[str] = ()) -> None:
        self.text = ""
        self.cursor = 0
        self.detached = False
        self._history: list[str] = list(history)[-_HISTORY:]
        self._at = len(self._history)
        self._kept = ""
        self._escape = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[str]:
        """Take what was typed; the lines that were finished by it."""
        lines = []
        for letter in self._decoder.decode(data):
            if self.detached:
                break
            if self._escape or letter == "\x1b":
                self._in_escape(letter)
            elif letter in "\r\n":
                lines.append(self._finish())
            elif letter in _DETACH or (letter == "\x04" and not self.text):
                self.detached = True
            elif letter == "\x04":
                self._do("delete")
            elif letter in _KEYS:
                self._do(_KEYS[letter])
            elif letter.isprintable():
                self.text = self.text[: self.cursor] + letter + self.text[self.cursor :]
                self.cursor += 1
        return lines

    def _in_escape(self, letter: str) -> None:
        """Collect a sequence; one we do not know is dropped as a whole."""
        self._escape += letter
        begun = self._escape
        if begun in _ESCAPES:
            self._do(_ESCAPES[begun])
        elif len(begun) < 3:
            if len(begun) == 1 or letter in "[O":
                return
        elif not (letter.isalpha() or letter == "~") and len(begun) < _LONGEST_ESCAPE:
            return
        self._escape = ""

    def _finish(self) -> str:
        line, self.text, self.cursor = self.text, "", 0
        if line and (not self._history or self._history[-1] != line):
            self._history.append(line)
            del self._history[:-_HISTORY]
        self._at = len(self._history)
        return line

    def _do(self, what: str) -> None:
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        if what == "erase":
            before = before[:-1]
        elif what == "erase_to_start":
            before = ""
        elif what == "erase_to_end":
            after = ""
        elif what == "erase_word":
            before = before.rstrip()
            before = before[: before.rfind(" ") + 1]
        elif what == "delete":
            after = after[1:]
        elif what in ("older", "newer"):
            self._recall(-1 if what == "older" else 1)
            return
        self.text = before + after
        moved = {"left": -1, "right": 1, "home": -len(self.text), "end": len(self.text)}.get(what, 0)
        self.cursor = min(max(0, len(before) + moved), len(self.text))

    def _recall(self, step: int) -> None:
        at = self._at + step
        if not 0 <= at <= len(self._history):
            return
        if self._at == len(self._history):
            self._kept = self.text
        self._at = at
        self.text = self._history[at] if at < len(self._history) else self._kept
        self.cursor = len(self.text)

    def view(self, prompt: str, columns: int) -> tuple[str, int]:
        """The text that fits on one line, and the column of the cursor: the part round the cursor."""
        room = max(8, columns - 1)
        prompt = prompt[-(room // 2) :]
        start = 0
        while text_width(prompt) + text_width(self.text[start : self.cursor]) >= room:
            start += 1
        shown = prompt
        for letter in self.text[start:]:
            if text_width(shown + letter) > room:
                break
            shown += letter
        return shown, text_width(prompt) + text_width(self.text[start : self.cursor])
