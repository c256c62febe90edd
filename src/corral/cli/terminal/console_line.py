"""An instance's console on a terminal: its text made harmless."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any, Final

_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_BEGUN: Final = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,64})?|\r)\Z")
_STEERS: Final = re.compile(
    r"[^\n\t -~\u00a0-\U0010ffff]"
    r"|[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
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
