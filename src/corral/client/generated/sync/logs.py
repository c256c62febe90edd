"""Methods of `logs`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from corral.client.answers import StreamMessage, UnknownData
from corral.client.generated import models
from corral.client.requests import Request
from corral.client.streams import StreamOrder
from corral.client.sync_calls import EventStream, SyncCalls


class Logs:
    """Operations of `/api/v1/logs`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        source: str,
        after: int | None = None,
        limit: int | None = None,
        level: models.LogLevel | None = None,
        since: str | None = None,
        until: str | None = None,
        request: str | None = None,
    ) -> models.LogPage:
        """Read a log; without `after` its newest records.

        - `source`: `controller` or `node:ID`.
        - `after`: Only records above this number.
        - `limit`: Most items of a page. Default: `100`.
        - `level`: Only records of this level or above.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `request`: Only records that were made for the request with this id, the `X-Request-Id` of its answer.

        `GET /api/v1/logs`, permission `logs.read`.
        """
        return self._calls.call(
            Request[models.LogPage](
                "GET",
                "/api/v1/logs",
                models.LogPage,
                query={
                    "source": source,
                    "after": after,
                    "limit": limit,
                    "level": level,
                    "since": since,
                    "until": until,
                    "request": request,
                },
            )
        )

    def all(
        self,
        *,
        source: str,
        after: int | None = None,
        limit: int | None = None,
        level: models.LogLevel | None = None,
        since: str | None = None,
        until: str | None = None,
        request: str | None = None,
    ) -> Iterator[models.Log]:
        """Read a log; without `after` its newest records: the items of all pages, each page read when it is needed.

        - `source`: `controller` or `node:ID`.
        - `after`: Only records above this number.
        - `limit`: Most items of a page. Default: `100`.
        - `level`: Only records of this level or above.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `request`: Only records that were made for the request with this id, the `X-Request-Id` of its answer.

        `GET /api/v1/logs`, permission `logs.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                source=source,
                limit=limit,
                level=level,
                since=since,
                until=until,
                request=request,
                after=position or after,
            )
        )

    def stream(
        self,
        *,
        source: str,
        after: int | None = None,
        tail: int | None = None,
        last_event_id: str | None = None,
    ) -> EventStream[StreamMessage[models.Log | UnknownData]]:
        """Follow a log.

        - `source`: `controller` or `node:ID`.
        - `after`: Only records above this number.
        - `tail`: Begin with this many old ones. Default: `0`.
        - `last_event_id`: `cursor` of a stream that was left.

        `GET /api/v1/logs/stream`, permission `logs.read`.
        """
        return self._calls.stream(
            StreamOrder[StreamMessage[models.Log | UnknownData]](
                "/api/v1/logs/stream",
                {"log": models.Log},
                query={"source": source, "after": after, "tail": tail},
                last_id=last_event_id,
            )
        )

    def put_level(
        self,
        *,
        source: str,
        level: Literal["", "DEBUG", "ERROR", "INFO", "TRACE", "WARN"],
        idempotency_key: str | None = None,
    ) -> models.LogLevelShape:
        """Switch a log's level at run time.

        - `source`: `controller` or `node:ID`.
        - `level`: The new level; empty: back to the configuration.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/logs/level`, permission `logs.manage`.
        """
        return self._calls.call(
            Request[models.LogLevelShape](
                "PUT",
                "/api/v1/logs/level",
                models.LogLevelShape,
                json={"source": source, "level": level},
                keyed=True,
                key=idempotency_key,
            )
        )
