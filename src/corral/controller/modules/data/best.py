"""The first of many hits in their order, in bounded memory."""

from __future__ import annotations

import heapq
from typing import Final

import msgspec

from corral.controller.modules.data.evaluation import Descending, Hit

_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Contents held at most; hits beyond that are held without theirs."""


class Best:
    """The first so many hits by their places, however many are added."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[Descending, Hit]] = []
        self._ids: set[str] = set()
        self._size = 0

    @property
    def full(self) -> bool:
        return len(self._heap) >= self._most

    def add(self, hit: Hit) -> None:
        if hit.id in self._ids:
            return
        if self.full:
            if not hit.place < self._heap[0][0].inner:
                return
            _, last = heapq.heappop(self._heap)
            self._ids.discard(last.id)
            self._size -= len(last.body or b"")
        if self._size + len(hit.body or b"") > _KEPT_BYTES:
            hit = msgspec.structs.replace(hit, body=None)
        self._size += len(hit.body or b"")
        self._ids.add(hit.id)
        heapq.heappush(self._heap, (Descending(hit.place), hit))

    def hits(self) -> list[Hit]:
        return [hit for _, hit in sorted(self._heap, key=lambda each: each[0], reverse=True)]
