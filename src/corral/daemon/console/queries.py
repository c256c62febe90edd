"""Queries for the older parts of a console, answered in bulk over the data channel."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.data_channel import DataChannel
from corral.errors import Bug, Code, CorralError, Rejected, Retryable
from corral.runtimes.console.lines import DISPLAY_BYTES
from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.console.search import Bounds, Pattern, search
from corral.system.aio.tasks import Tasks
from corral.system.threads import to_end
from corral.wire.v1.instance_pb2 import (
    ConsoleBlock,
    ConsoleGap,
    ConsoleQuery,
    ConsoleQueryFailed,
    ConsoleQueryResult,
    ConsoleTime,
)
from corral.wire.v1.link_pb2 import DaemonMessage

MAX_ANSWER_BYTES: Final = 8 << 20
DEFAULT_ANSWER_BYTES: Final = 1 << 20
MAX_LINES: Final = 10_000
DEFAULT_LINES: Final = 1_000
AT_ONCE: Final = 4
SEARCHES_AT_ONCE: Final = 2
"""Of them; pages are read meanwhile."""
SEARCH_SECONDS: Final = 5.0
"""A search that takes longer answers with what it has, and where the next one continues."""
WAITING: Final = 64
_log = structlog.get_logger("corral.daemon.console")


class Queries:
    """Answers the queries of one connection, a few at a time. `close` cancels those under way."""

    def __init__(self, connection: LinkConnection, monotonic: Callable[[], float]) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._channel: DataChannel | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)
        self._tasks = Tasks()

    def answer(self, query: ConsoleQuery, directory: str | None) -> None:
        """Begin to answer; never blocks. Every query gets an answer or a refusal, or the connection ends. `directory`
        is that of the console, None when there is none."""
        if directory is None:
            self._refuse(query, _gone(query))
        else:
            self.answer_with(query, lambda: answer_to(query, directory, self._monotonic))

    def answer_with(self, query: ConsoleQuery, find: Callable[[], ConsoleQueryResult]) -> None:
        """The same with the result of `find`, called in a thread."""
        if len(self._tasks) >= WAITING:
            why = f"{WAITING} questions about consoles are waiting for an answer already"
            self._refuse(query, Retryable(Code.RATE_LIMITED, why, retry_after=1.0))
        else:
            self._tasks.spawn(
                self._answer(query, find), name=f"console/answer/{query.request_id}", keeps_ids=True
            )

    async def close(self) -> None:
        await self._tasks.close()
        await self._hang_up()

    async def _answer(self, query: ConsoleQuery, find: Callable[[], ConsoleQueryResult]) -> None:
        try:
            async with contextlib.AsyncExitStack() as turns:
                if query.pattern:
                    await turns.enter_async_context(self._searches)
                await turns.enter_async_context(self._turns)
                content = await to_end(lambda: find().SerializeToString())
                await self._data().push_bytes(query.request_id, content)
        except CorralError as error:
            self._refuse(query, error)
        except Exception as error:
            _log.error("console_query.failed", instance=query.instance_id, exc_info=error)
            self._refuse(query, Bug(f"the console of '{query.instance_id}' cannot be read: {error}"))
        finally:
            if len(self._tasks) == 1:  # this is the last query
                await self._hang_up()

    async def _hang_up(self) -> None:
        """Close the channel, which is open as long as there are queries: they come in bursts."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            async with channel:
                pass

    def _data(self) -> DataChannel:
        if self._channel is None:
            self._channel = DataChannel(self._connection)
        return self._channel

    def _refuse(self, query: ConsoleQuery, error: CorralError) -> None:
        failed = ConsoleQueryFailed(
            request_id=query.request_id, error_code=error.code.name, error_message=str(error)
        )
        self._connection.send(DaemonMessage(console_query_failed=failed))


def _gone(query: ConsoleQuery) -> Rejected:
    return Rejected(
        Code.CONSOLE_GONE,
        f"this node has no console of '{query.instance_id}' run {query.incarnation}",
        hint="consoles of ended runs are kept for a while only (instances.keep_ended_seconds)",
    )


def answer_to(
    query: ConsoleQuery, directory: str, monotonic: Callable[[], float] = time.monotonic
) -> ConsoleQueryResult:
    """Read or search; in a thread of its own, because a search may take a while: `SEARCH_SECONDS` and the rest of a
    window."""
    deadline = monotonic() + SEARCH_SECONDS
    with ConsoleLog(directory) as log:
        first, end = log.first_offset, log.end_offset
        start = min(max(query.from_offset, first), end)
        until = min(query.to_offset or end, end)
        if query.since_ms > 0:  # the time of a line is that of its first byte
            start = max(start, log.line_start(log.since(query.since_ms), end))
        if query.until_ms > 0:
            until = end = min(until, log.line_start(log.since(query.until_ms), end))
            start = min(start, end)
        result = ConsoleQueryResult(first_offset=first, end_offset=end, next_offset=start)
        if query.pattern:
            _search(log, query, start, until, result, lambda: monotonic() > deadline)
        elif start < until:
            _read(log, query, start, until, result)
        for gap in log.gaps(*_covered(query, start, until, result)):
            result.gaps.append(
                ConsoleGap(from_offset=gap.from_offset, to_offset=gap.to_offset, reason=gap.reason)
            )
    return result


def _covered(query: ConsoleQuery, start: int, until: int, result: ConsoleQueryResult) -> tuple[int, int]:
    """The range whose gaps the answer has. Read backwards it begins one byte earlier, so that a gap right before the answer
    is among them, and with the console where nothing lies before it."""
    begin, at = query.from_offset, result.next_offset
    if not query.newest:
        return start if query.since_ms > 0 else begin, at  # earlier lines were not requested
    if query.pattern:
        return at, until
    return 0 if query.to_offset and at <= result.first_offset else max(begin, at - 1), until


def _read(log: ConsoleLog, query: ConsoleQuery, start: int, until: int, result: ConsoleQueryResult) -> None:
    """The first part of the range or the last, cut at line breaks where there are any."""
    limit = min(query.max_bytes or DEFAULT_ANSWER_BYTES, MAX_ANSWER_BYTES)
    if query.newest:
        until = log.stored_end(until)  # not only of a gap, however long it is
        if until - start > limit:
            start = log.line_start(until - limit, until)
    result.next_offset = start
    taken = 0
    for block in log.blocks(start, until):
        data = block.data[: limit - taken]
        if len(data) < len(block.data):
            data = data[: data.rfind(b"\n") + 1 or len(data)]
        if data:
            _add(log, query, block.offset, data, result)
        taken += len(data)
        if len(data) < len(block.data):
            if not query.newest:
                result.next_offset = block.offset + len(data)
            return
    if not query.newest:
        result.next_offset = until


def _search(
    log: ConsoleLog,
    query: ConsoleQuery,
    start: int,
    until: int,
    result: ConsoleQueryResult,
    over: Callable[[], bool],
) -> None:
    bounds = Bounds(
        max_lines=min(query.max_lines or DEFAULT_LINES, MAX_LINES),
        max_bytes=max(DISPLAY_BYTES, min(query.max_bytes or DEFAULT_ANSWER_BYTES, MAX_ANSWER_BYTES)),
        over=over,
    )
    hits = search(log, Pattern(query.pattern), start, until, bounds, newest=query.newest)
    result.next_offset = hits.next_offset
    for hit in hits.found:
        _add(log, query, hit.offset, hit.data, result)


def _add(log: ConsoleLog, query: ConsoleQuery, offset: int, data: bytes, result: ConsoleQueryResult) -> None:
    times = [
        ConsoleTime(offset=s.offset, timestamp_ms=s.timestamp_ms)
        for s in log.times(offset, offset + len(data))
    ]
    result.blocks.append(
        ConsoleBlock(
            instance_id=query.instance_id,
            incarnation=query.incarnation,
            offset=offset,
            data=data,
            times=times,
        )
    )
