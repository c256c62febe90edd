"""Methods of `audit`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator

from corral.client.generated import models
from corral.client.requests import Request
from corral.client.sync_calls import Download, SyncCalls


class Audit:
    """Operations of `/api/v1/audit`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        since: str | None = None,
        until: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
    ) -> models.AuditPage:
        """List changes, the newest first.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `actor`: Only by this actor (`user:anna`, `token:…`, `host:root`), by what follows its first colon (`anna`), or by its name.
        - `action`: Only actions that begin so: `groups.`, `instances.command`.
        - `subject`: Only what was done to this.

        `GET /api/v1/audit`, permission `audit.read`.
        """
        return self._calls.call(
            Request[models.AuditPage](
                "GET",
                "/api/v1/audit",
                models.AuditPage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "since": since,
                    "until": until,
                    "actor": actor,
                    "action": action,
                    "subject": subject,
                },
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        since: str | None = None,
        until: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
    ) -> Iterator[models.Audit]:
        """List changes, the newest first: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `actor`: Only by this actor (`user:anna`, `token:…`, `host:root`), by what follows its first colon (`anna`), or by its name.
        - `action`: Only actions that begin so: `groups.`, `instances.command`.
        - `subject`: Only what was done to this.

        `GET /api/v1/audit`, permission `audit.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                limit=limit,
                since=since,
                until=until,
                actor=actor,
                action=action,
                subject=subject,
                cursor=position,
            )
        )

    def export(self, *, since: str | None = None, until: str | None = None) -> Download:
        """Download the audit as lines of JSON, the oldest first, with the hashes of its chain.

        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.

        `GET /api/v1/audit/export`, permission `audit.read`.
        """
        return self._calls.download(
            Request[None]("GET", "/api/v1/audit/export", query={"since": since, "until": until})
        )
