"""What a process says when it crashes, in a file that it shares with the host."""

from __future__ import annotations

import fcntl
import os
from typing import Final

_WORDS_BYTES: Final = 16 * 1024


def crash_output_file() -> int:
    """In memory, for what a crashing process says; it cannot be made to hold more."""
    words = os.memfd_create("corral-last-words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(words, _WORDS_BYTES)
    fcntl.fcntl(words, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return words


def read_crash_output(words: int) -> str:
    """The file is shared with the process: its position is wherever that wrote last."""
    return os.pread(words, _WORDS_BYTES, 0).decode(errors="replace").strip("\0").strip()
