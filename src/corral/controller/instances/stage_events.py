"""Events of the stages of a start that takes a while.

A node reports a stage of a preparation when it lasts a quarter of a second, and what readiness waits for; neither is
stored. Here they become INSTANCE_STAGE events, as many as people can follow: a start that is quick has none. The newest
report of a run counts. Those of all runs are committed together at most once a second, a run has at most 32 of them, and
a node ten a second. Beyond that, and while the store is away, reports only change what the API shows.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from corral.controller.state.ledger import Ledger
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import InstanceRecord, is_ready, live
from corral.domain.ids import NodeId
from corral.errors import CorralError
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock

PER_RUN: Final = 32
PER_NODE_SECOND: Final = 10
NODE_BURST: Final = 40
PAUSE_SECONDS: Final = 1.0
_PER_COMMIT: Final = 200
_MOST_PENDING: Final = 10_000
_log = structlog.get_logger("corral.controller.instances")


class _RunStage(msgspec.Struct, frozen=True):
    """The last published stage of a run, and how many were published."""

    incarnation: int
    stage: str = ""
    reason: str = ""
    count: int = 0


class StageEvents:
    """Takes stages as nodes report them; `run` publishes them. Never blocks whoever reports."""

    def __init__(
        self, ledger: Ledger, *, clock: Clock, per_run: int = PER_RUN, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        self._ledger = ledger
        self._per_run = per_run
        self._pause = pause_seconds
        self._rate = TokenBuckets[NodeId](
            burst=NODE_BURST, per_second=PER_NODE_SECOND, monotonic=clock.monotonic
        )
        self._published: dict[str, _RunStage] = {}
        self._pending: dict[str, _RunStage] = {}
        self._wake = asyncio.Event()

    def note(self, record: InstanceRecord, incarnation: int, stage: str, reason: str) -> None:
        """A run is in this stage of its preparation, or (without one) waits for this to be ready."""
        last = self._published.get(record.id)
        if last is None or last.incarnation != incarnation:
            last = _RunStage(incarnation)
        if (stage, reason) == (last.stage, last.reason):
            self._pending.pop(record.id, None)
            return
        if last.count < self._per_run and (record.id in self._pending or len(self._pending) < _MOST_PENDING):
            self._pending[record.id] = _RunStage(incarnation, stage, reason, last.count + 1)
            self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._publish()
            self._forget_ended()
            await asyncio.sleep(self._pause)
            if self._pending:
                self._wake.set()

    async def _publish(self) -> None:
        drafts: list[Draft] = []
        for id in list(self._pending)[:_PER_COMMIT]:
            noted = self._pending.pop(id)
            record = self._waiting(id, noted.incarnation)
            if record is not None and self._rate.take(NodeId(record.node)):
                self._published[id] = noted
                drafts.append(_draft(record, noted))
        if not drafts:
            return
        try:
            await self._ledger.commit(*drafts)
        except CorralError as error:
            _log.debug("stage_events.skipped", count=len(drafts), reason=str(error))

    def _waiting(self, id: str, incarnation: int) -> InstanceRecord | None:
        """The record of a run that is still on its way."""
        stored = self._ledger.state.instances.find(id)
        record = stored.record if stored is not None else None
        if record is None or record.incarnation != incarnation or not live(record.state):
            return None
        return None if is_ready(record) else record

    def _forget_ended(self) -> None:
        if len(self._published) > 2 * len(self._ledger.state.instances) + _PER_COMMIT:
            self._published = {
                id: noted
                for id, noted in self._published.items()
                if self._waiting(id, noted.incarnation) is not None
            }


def _draft(record: InstanceRecord, noted: _RunStage) -> Draft:
    return Draft(
        type=EventType.INSTANCE_STAGE,
        subject=record.id,
        data={
            "group": record.group,
            "node": record.node,
            "incarnation": noted.incarnation,
            "stage": noted.stage,
            "reason": noted.reason,
        },
    )
