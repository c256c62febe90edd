"""The audit: who changed what, the newest first."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.paging import Page, TimedPageQuery, newest_entries
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.state.collections import AUDIT
from corral.domain.permissions import Permission
from corral.store.port import Entry, ReadEngine


class AuditShape(msgspec.Struct, frozen=True, kw_only=True):
    """One change; `before` and `after` hold what it touched. `actor_name` is the name of the token that did it,
    empty in entries from before names were kept."""

    number: int
    at: dt.datetime
    actor: str
    actor_name: str
    action: str
    subject: str
    address: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    request: str


async def list_audit(reads: ReadEngine, call: ApiCall[None, TimedPageQuery]) -> Page[AuditShape]:
    found, following = await newest_entries(reads, AUDIT.name, call.query)
    return Page(items=[_shape(entry) for entry in found], next=following)


def _shape(entry: Entry) -> AuditShape:
    record = AUDIT.decode(entry.body)
    return AuditShape(
        number=entry.number,
        at=entry.at,
        actor=record.actor,
        actor_name=record.actor_name,
        action=record.action,
        subject=record.subject,
        address=record.address,
        before=record.before,
        after=record.after,
        request=record.request,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/audit",
        permission=Permission.AUDIT_READ,
        summary="List changes, the newest first",
        query=TimedPageQuery,
        response=Page[AuditShape],
        handler=list_audit,
    ),
)
