"""The reader of gzip: content as it comes, and little input without any.

A reader of our own: the one of the standard library goes on by itself, for as long as the input lasts, over names without end, members
without content and padding, and yields nothing meanwhile. Nobody could break it off.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from corral.archives.entries import Readable

_INPUT: Final = 32 * 1024
_OUTPUT: Final = 64 * 1024
_GZIP: Final = zlib.MAX_WBITS | 16
"""With the head and the checksum of gzip."""
MOST_IDLE: Final = 1024 * 1024
"""Bytes of input in a row that may be without content: names, empty members, and the padding behind the last one."""
FREE_MEMBERS: Final = 1000
LEAST_CONTENT: Final = 512
"""Bytes that the members have on average, where there are more than those: each one costs more than its bytes."""


class GzipReader:
    """The content of all members. EOFError when it was cut, `zlib.error` when it is damaged or has too little content. `check` is
    called for every block of input, and raises to break off."""

    def __init__(self, source: Readable, check: Callable[[], None]) -> None:
        self._source = source
        self._check = check
        self._held = b""
        """Input that is not decompressed yet."""
        self._member: zlib._Decompress | None = None
        """The member that is being read; None: between two."""
        self._members = self._produced = 0
        self._content = b""
        self._position = 0

    def read(self, size: int, /) -> bytes:
        """At most so many bytes, at least one; empty at the end."""
        if self._position == len(self._content):
            self._content, self._position = self._next_content(), 0
        block = self._content[self._position : self._position + size]
        self._position += len(block)
        return block

    def _next_content(self) -> bytes:
        idle = 0
        while True:
            self._check()
            held = self._held or self._source.read(_INPUT)
            if not held:
                if self._member is not None or not self._members:
                    raise EOFError
                return b""
            content = self._decompressed(held)
            if content:
                self._produced += len(content)
                return content
            idle += len(held) - len(self._held)
            if idle > MOST_IDLE:
                raise zlib.error("it goes on for long without any content")

    def _decompressed(self, held: bytes) -> bytes:
        """What the next input becomes; `_held` is what is left of it."""
        if self._member is None:
            rest = held.lstrip(b"\0") if self._members else held
            if not rest:
                self._held = b""
                return b""
            held, self._member = rest, self._next_member()
        content = self._member.decompress(held, _OUTPUT)
        self._held = self._member.unconsumed_tail
        if self._member.eof:
            self._held, self._member = self._member.unused_data, None
        return content

    def _next_member(self) -> zlib._Decompress:
        self._members += 1
        if self._members > FREE_MEMBERS and self._produced < self._members * LEAST_CONTENT:
            raise zlib.error("its members have hardly any content")
        return zlib.decompressobj(wbits=_GZIP)
