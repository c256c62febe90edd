"""Digests of files of any size: memory does not grow with them, and whoever gives up is not kept waiting."""

from __future__ import annotations

import hashlib
import io
from typing import Final

from corral.system.threads import check_wanted

_STEP: Final = 1024 * 1024


def sha256_of(file: io.BufferedReader) -> hashlib._Hash:
    """SHA-256 of a file from where it stands to its end. Blocking; in `to_end` it stops between two steps when
    it is wanted no more."""
    hashed = hashlib.sha256()
    block = bytearray(_STEP)
    view = memoryview(block)
    while size := file.readinto(block):
        hashed.update(view[:size])
        check_wanted()
    return hashed
