"""Who is behind an event: the request in whose transaction it was stored, from the audit."""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from corral.controller.http.messages.paging import TimedPageQuery, newest_entries
from corral.controller.state.collections import AUDIT
from corral.domain.records import AuditEntry
from corral.store.port import ReadEngine

_SAME: Final = dt.timedelta(milliseconds=1)
"""An audit entry has the time of the events of its transaction."""
_REMOVAL: Final = dt.timedelta(minutes=10)
"""So long after the removal of a node the last of its instances is given up, at most."""
_REMOVED: Final = "nodes.remove"


class Author(NamedTuple):
    request: str
    text: str
    at: dt.datetime


async def author_of(reads: ReadEngine, subject: str, at: dt.datetime) -> Author | None:
    """The request whose transaction stored an event about this subject at this time."""
    return await _find(reads, subject, at - _SAME, at + _SAME)


async def remover_of(reads: ReadEngine, node: str, before: dt.datetime) -> Author | None:
    """The request that removed a node, if that was shortly before."""
    return await _find(reads, node, before - _REMOVAL, before + _SAME, action=_REMOVED)


async def last_change_of(reads: ReadEngine, node: str) -> Author | None:
    """The newest request that changed a node, as far as it is among the newest of all requests."""
    for entry in reversed(await reads.entries(AUDIT.name, limit=200, newest=True)):
        record = AUDIT.decode(entry.body)
        if record.subject == node and record.action.startswith("nodes."):
            return Author(record.request, asked(record), entry.at)
    return None


async def _find(
    reads: ReadEngine, subject: str, since: dt.datetime, until: dt.datetime, *, action: str = ""
) -> Author | None:
    entries, _ = await newest_entries(reads, AUDIT.name, TimedPageQuery(limit=200, since=since, until=until))
    for entry in entries:
        record = AUDIT.decode(entry.body)
        if record.subject == subject and action in ("", record.action):
            return Author(record.request, asked(record), entry.at)
    return None


def asked(record: AuditEntry) -> str:
    """Who asked for what."""
    return f"{record.actor_name or record.actor} asked for {record.action} of '{record.subject}'"
