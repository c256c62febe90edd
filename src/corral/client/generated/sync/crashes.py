"""Methods of `crashes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator

from corral.client.addresses import segment
from corral.client.generated import models
from corral.client.requests import Request
from corral.client.sync_calls import SyncCalls


class Crashes:
    """Operations of `/api/v1/crashes`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        since: str | None = None,
        until: str | None = None,
        group: str | None = None,
        node: str | None = None,
        instance: str | None = None,
        crash_class: models.CrashClass | None = None,
    ) -> models.CrashPage:
        """List crashes, the newest first.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `group`: Name of a group: only what belongs to it.
        - `node`: Id of a node: only what is there.
        - `instance`: Only crashes of this instance.
        - `crash_class`: Only crashes of this class.

        `GET /api/v1/crashes`, permission `crashes.read`.
        """
        return self._calls.call(
            Request[models.CrashPage](
                "GET",
                "/api/v1/crashes",
                models.CrashPage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "since": since,
                    "until": until,
                    "group": group,
                    "node": node,
                    "instance": instance,
                    "crash_class": crash_class,
                },
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        since: str | None = None,
        until: str | None = None,
        group: str | None = None,
        node: str | None = None,
        instance: str | None = None,
        crash_class: models.CrashClass | None = None,
    ) -> Iterator[models.Crash]:
        """List crashes, the newest first: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `group`: Name of a group: only what belongs to it.
        - `node`: Id of a node: only what is there.
        - `instance`: Only crashes of this instance.
        - `crash_class`: Only crashes of this class.

        `GET /api/v1/crashes`, permission `crashes.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                limit=limit,
                since=since,
                until=until,
                group=group,
                node=node,
                instance=instance,
                crash_class=crash_class,
                cursor=position,
            )
        )

    def get(self, id: str) -> models.CrashReport:
        """Show a crash with the last lines of its console.

        - `id`: Id of the crash: `INSTANCE.INCARNATION`.

        `GET /api/v1/crashes/{id}`, permission `instances.console`.
        """
        return self._calls.call(
            Request[models.CrashReport]("GET", f"/api/v1/crashes/{segment(id)}", models.CrashReport)
        )
