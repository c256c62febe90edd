"""Whether there is room on the disk for what is being written, looked at now and then."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Final

from corral.daemon.node.disk_space import check_room

LOOK_EVERY: Final = 8 * 1024 * 1024
"""So many bytes are received between two looks at the free space."""


class RoomCheck:
    """Looks whether there is room for the rest of what is being written beside `place`, now and then."""

    def __init__(self, place: pathlib.Path, *, reserve_mb: int, size: int) -> None:
        self._place = place.parent
        self._reserve_mb = reserve_mb
        self._size = size
        self._next = 0

    async def look(self, so_far: int) -> None:
        """DISK_FULL, before it is."""
        if so_far >= self._next:
            await asyncio.to_thread(self.check, so_far)

    def check(self, so_far: int) -> None:
        """The same, from a thread."""
        if so_far >= self._next:
            check_room(self._place, reserve_mb=self._reserve_mb, copied_bytes=max(self._size - so_far, 0))
            self._next = so_far + LOOK_EVERY
