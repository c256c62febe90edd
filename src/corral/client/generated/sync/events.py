"""Methods of `events`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from corral.client.generated import models
from corral.client.requests import Request, joined
from corral.client.streams import StreamOrder
from corral.client.sync_calls import EventStream, SyncCalls


class Events:
    """Operations of `/api/v1/events`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        types: str | Sequence[str] | None = None,
        subject: str | None = None,
        group: str | None = None,
        node: str | None = None,
        after: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        newest: bool | None = None,
    ) -> models.EventPage:
        """List events, the oldest first.

        - `types`: Event types, separated by commas; empty: all.
        - `subject`: Only events about this id.
        - `group`: Only events about this group, or whose data names it.
        - `node`: Only events about this node, or whose data names it.
        - `after`: Only events after this one: EPOCH-SEQUENCE, as in an event's `id`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `limit`: Most items of a page. Default: `100`.
        - `newest`: The last ones instead of the first. Default: `false`.

        `GET /api/v1/events`, permission `events.read`.
        """
        return self._calls.call(
            Request[models.EventPage](
                "GET",
                "/api/v1/events",
                models.EventPage,
                query={
                    "types": joined(types),
                    "subject": subject,
                    "group": group,
                    "node": node,
                    "after": after,
                    "since": since,
                    "until": until,
                    "limit": limit,
                    "newest": newest,
                },
            )
        )

    def all(
        self,
        *,
        types: str | Sequence[str] | None = None,
        subject: str | None = None,
        group: str | None = None,
        node: str | None = None,
        after: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        newest: bool | None = None,
    ) -> Iterator[models.Event]:
        """List events, the oldest first: the items of all pages, each page read when it is needed.

        - `types`: Event types, separated by commas; empty: all.
        - `subject`: Only events about this id.
        - `group`: Only events about this group, or whose data names it.
        - `node`: Only events about this node, or whose data names it.
        - `after`: Only events after this one: EPOCH-SEQUENCE, as in an event's `id`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `limit`: Most items of a page. Default: `100`.
        - `newest`: The last ones instead of the first. Default: `false`.

        `GET /api/v1/events`, permission `events.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                types=types,
                subject=subject,
                group=group,
                node=node,
                since=since,
                until=until,
                limit=limit,
                newest=newest,
                after=position or after,
            )
        )

    def stream(
        self,
        *,
        types: str | Sequence[str] | None = None,
        subject: str | None = None,
        group: str | None = None,
        node: str | None = None,
        after: str | None = None,
        with_: Literal["resource"] | None = None,
        last_event_id: str | None = None,
    ) -> EventStream[models.EventFrame]:
        """Follow events.

        - `types`: Event types, separated by commas; empty: all.
        - `subject`: Only events about this id.
        - `group`: Only events about this group, or whose data names it.
        - `node`: Only events about this node, or whose data names it.
        - `after`: Only events after this one: EPOCH-SEQUENCE, as in an event's `id`.
        - `with_`: `resource`: each event about an instance, group, node, deployment or module carries it in short, as of the event or later.
        - `last_event_id`: `cursor` of a stream that was left.

        `GET /api/v1/events/stream`, permission `events.read`.
        """
        return self._calls.stream(
            StreamOrder[models.EventFrame](
                "/api/v1/events/stream",
                models.EVENT_KINDS,
                query={
                    "types": joined(types),
                    "subject": subject,
                    "group": group,
                    "node": node,
                    "after": after,
                    "with": with_,
                },
                last_id=last_event_id,
                bare=True,
            )
        )

    def tickets(self) -> models.Ticket:
        """A ticket for one stream, socket or download.

        `POST /api/v1/events/tickets`, permission `self.read`.
        """
        return self._calls.call(Request[models.Ticket]("POST", "/api/v1/events/tickets", models.Ticket))

    def types(self) -> models.EventTypePage:
        """The types of events, with the fields of their data.

        `GET /api/v1/events/types`, permission `events.read`.
        """
        return self._calls.call(
            Request[models.EventTypePage]("GET", "/api/v1/events/types", models.EventTypePage)
        )
