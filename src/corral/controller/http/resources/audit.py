"""The audit: who changed what, the newest first."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from corral.controller.collections import AUDIT
from corral.controller.http.call import Call
from corral.controller.http.paging import Page, PageQuery, decode_cursor, encode_cursor
from corral.controller.http.route_table import Read, Route
from corral.controller.http.setting import Leading
from corral.domain.ids import MAX_COUNTER
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected
from corral.store.port import Entry


class AuditShape(msgspec.Struct, frozen=True, kw_only=True):
    """One change; `before` and `after` hold what it touched."""

    number: int
    at: dt.datetime
    actor: str
    action: str
    subject: str
    address: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


async def list_audit(leading: Leading, call: Call[None, PageQuery]) -> Page[AuditShape]:
    limit = call.query.limit
    before = _before(decode_cursor(AUDIT.name, call.query.cursor))
    found = await leading.reads.entries(AUDIT.name, before=before, limit=limit + 1, newest=True)
    shown = found[-limit:]
    more = len(found) > limit
    return Page(
        items=[_shape(entry) for entry in reversed(shown)],
        next=encode_cursor(AUDIT.name, str(shown[0].number)) if more else None,
    )


def _before(position: str | None) -> int | None:
    if position is None:
        return None
    if not (position.isascii() and position.isdecimal() and len(position) < 19):
        raise Rejected(Code.INVALID_CURSOR, "the cursor is not one of this list", field="cursor")
    return min(int(position), MAX_COUNTER)


def _shape(entry: Entry) -> AuditShape:
    record = AUDIT.decode(entry.body)
    return AuditShape(
        number=entry.number,
        at=entry.at,
        actor=record.actor,
        action=record.action,
        subject=record.subject,
        address=record.address,
        before=record.before,
        after=record.after,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/audit",
        permission=Permission.AUDIT_READ,
        summary="List changes, the newest first",
        query=PageQuery,
        response=Page[AuditShape],
        handler=list_audit,
    ),
)
