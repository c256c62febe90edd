"""The decisions behind one answer: each journal is read once, and only what is shown is decoded as a whole."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.http.resources.decisions import DecisionShape, decision_shape
from corral.controller.state.collections import Journal
from corral.domain.groups.instance_records import DecisionRecord
from corral.store.port import Entry, ReadEngine

RECENT: Final = 20
_SEARCHED: Final = 200
"""How many of a subject's newest decisions are searched for one of them."""


class DecisionHead(msgspec.Struct, frozen=True, kw_only=True):
    """A decision without its inputs and rejected alternatives, which are most of it."""

    id: str
    kind: str
    subject: str
    reason: str
    cause: str
    at: dt.datetime
    rule: str = ""
    node: str = ""
    causes: tuple[str, ...] = ()
    root: str = ""


_HEAD: Final = msgspec.json.Decoder(DecisionHead)


class DecisionHistory:
    """The newest decisions of journals, for one answer."""

    def __init__(self, reads: ReadEngine) -> None:
        self._reads = reads
        self._entries: dict[str, dict[str, Entry]] = {}
        self._heads: dict[str, dict[str, DecisionHead]] = {}

    async def heads(self, journal: Journal[DecisionRecord]) -> dict[str, DecisionHead]:
        """The decisions of a journal by their ids, the newest first."""
        if journal.name not in self._heads:
            entries = await self._reads.entries(journal.name, limit=_SEARCHED, newest=True)
            found = [(_HEAD.decode(entry.body), entry) for entry in reversed(entries)]
            self._heads[journal.name] = {head.id: head for head, _ in found}
            self._entries[journal.name] = {head.id: entry for head, entry in found}
        return self._heads[journal.name]

    async def shape(self, journal: Journal[DecisionRecord], id: str) -> DecisionShape | None:
        """A decision of a journal as a whole."""
        await self.heads(journal)
        entry = self._entries[journal.name].get(id)
        return decision_shape(journal, entry) if entry is not None else None

    async def recent(self, journal: Journal[DecisionRecord]) -> list[DecisionShape]:
        """The last decisions of a journal, the newest first."""
        await self.heads(journal)
        entries = list(self._entries[journal.name].values())[:RECENT]
        return [decision_shape(journal, entry) for entry in entries]
