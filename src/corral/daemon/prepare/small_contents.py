"""Contents of small files, in memory: to write one again takes three system calls, to copy it five.

A busy daemon pays for each call that a thread makes, as another thread may take the interpreter meanwhile. What is kept
was read from the node's cache and has the digest by which it is named there.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import threading
from collections import OrderedDict
from typing import Final

LARGEST_BYTES: Final = 16 * 1024
"""A larger file is copied by the kernel, or cloned."""
ALL_BYTES: Final = 2 * 1024 * 1024


class SmallContents:
    """The contents used last. Shared by threads."""

    def __init__(self, *, all_bytes: int = ALL_BYTES) -> None:
        self._all_bytes = all_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._changing = threading.Lock()

    def read(self, digest: str, path: pathlib.Path) -> bytes | None:
        """The content with this digest, which is in the file; None when the file has another one. Blocks."""
        with self._changing:
            if (kept := self._kept.get(digest)) is not None:
                self._kept.move_to_end(digest)
                return kept
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            body = os.read(descriptor, LARGEST_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(body) > LARGEST_BYTES or hashlib.sha256(body).hexdigest() != digest:
            return None  # written to since it was last seen whole: a copy shows what is there, as for a large file
        self._keep(digest, body)
        return body

    def _keep(self, digest: str, body: bytes) -> None:
        with self._changing:
            if digest not in self._kept:
                self._kept[digest] = body
                self._bytes += len(body)
            while self._bytes > self._all_bytes:
                self._bytes -= len(self._kept.popitem(last=False)[1])
