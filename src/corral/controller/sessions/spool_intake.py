"""Intake of a node's spool: each record is stored once, in order, and only then confirmed.

The position of the node's spool moves in the same transaction as the effects of its records, so a record that
arrives twice (the confirmation was lost) has no second effect.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.controller.sessions.commit_faults import (
    QUICK_CONFLICTS,
    aside_report,
    awaits_repair,
    conflict_pause,
    described,
    ends_session,
    may_pass,
    repair_pause,
)
from corral.controller.sessions.frame_receivers import ModuleTraffic, NodeReports, Reported
from corral.controller.sessions.handshake import check_running
from corral.controller.sessions.node_log_records import error_event, log_record
from corral.controller.state.collections import SPOOLS, node_log
from corral.controller.state.ledger import Ledger, Step
from corral.controller.state.quarantine import NotOverwritten
from corral.domain.ids import NodeId, SessionId
from corral.domain.records import SpoolPosition
from corral.errors import Code, Rejected, Retryable
from corral.store.store_errors import Conflict
from corral.system.aio.tasks import set_within
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock
from corral.wire.frame_table import FrameOwner, NodeFrame, node_frame
from corral.wire.v1.instance_pb2 import AskRunEnds, RunEnds
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, Handshake, HandshakePortion

MAX_WAITING: Final = 8 * 512
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
"""Well above the window of a daemon, and still bounded."""
_PACED_RECORDS: Final = 2 * 512
_PACED_BYTES: Final = MAX_WAITING_BYTES // 4
REPORTS_PER_MINUTE: Final = 60
_PER_COMMIT: Final = 500
_RETRY_SECONDS: Final = 1.0
_PORTIONS_SECONDS: Final = 60.0
_ENDS_AT_ONCE: Final = 100
_ENDS_SECONDS: Final = 10.0

_log = structlog.get_logger("corral.controller.sessions")


class Intake:
    """The spool of one session, from arrival to confirmation."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        node_id: NodeId,
        session_id: SessionId,
        hello: Handshake,
        reports: NodeReports,
        modules: ModuleTraffic,
        confirm: Callable[[int], None],
        ask: Callable[[ControllerMessage], bool],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._node_id = node_id
        self._session_id = session_id
        self._hello = hello
        self._listed = list(hello.running_instances)
        self._listed_bytes = 0
        self._all_listed = asyncio.Event()
        if not hello.portions_follow:
            self._all_listed.set()
        self._spool_id = hello.spool_id
        self._instances = reports
        self._modules = modules
        self._inventory_complete = False
        self._confirm = confirm
        self._ask = ask
        self._ends: asyncio.Future[RunEnds] | None = None
        """The awaited answer about ended runs."""
        self._journal = node_log(node_id)
        self._waiting: deque[NodeFrame] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._stored = asyncio.Event()
        self._reports = TokenBucket(
            burst=REPORTS_PER_MINUTE, per_second=REPORTS_PER_MINUTE / 60, monotonic=clock.monotonic
        )
        self._suppressed = 0
        self._unknown: set[str] = set()

    @property
    def confirmed(self) -> int:
        """The highest sequence stored for this spool; a new spool of the node starts at 0."""
        stored = self._ledger.state.spools.find(self._node_id)
        return stored.record.sequence if stored and stored.record.spool_id == self._spool_id else 0

    def offer(self, frame: NodeFrame) -> None:
        """Queue a message; never blocks. A node that exceeds its window is disconnected."""
        size = frame.message.ByteSize()
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
            raise Retryable(
                Code.PEER_TOO_SLOW, f"node '{self._node_id}' sent more unconfirmed records than allowed"
            )
        self._waiting_bytes += size
        self._waiting.append(frame)
        self._wake.set()

    async def room(self) -> None:
        """Wait for room in the queue, for a peer without a window: its stream is read more slowly instead."""
        while len(self._waiting) >= _PACED_RECORDS or self._waiting_bytes >= _PACED_BYTES:
            self._stored.clear()
            await self._stored.wait()

    def list_more(self, portion: HandshakePortion) -> None:
        """A further portion of the handshake's list; a CorralError ends the stream."""
        if self._all_listed.is_set():
            raise Rejected(Code.BAD_REQUEST, "a HandshakePortion came behind the last one")
        check_running(portion, before=len(self._listed), before_bytes=self._listed_bytes)
        self._listed_bytes += portion.ByteSize()
        self._listed.extend(portion.running_instances)
        if portion.last:
            self._all_listed.set()

    async def _listed_all(self) -> None:
        if not await set_within(self._all_listed, _PORTIONS_SECONDS):
            raise Retryable(
                Code.TIMEOUT, f"the last HandshakePortion did not come within {_PORTIONS_SECONDS:g} s"
            )

    async def run(self) -> None:
        """Store what arrives until cancelled. While the store is down records are delayed, not lost."""
        await self._listed_all()
        await self._once(self._open, otherwise=self._opened)
        while True:
            if not self._inventory_complete and self._is_caught_up():
                await self._once(self._complete_inventory, otherwise=self._reconciled)
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch = self._next_batch()
            if not batch:
                continue  # the inventory is completed first
            fresh = _unseen(batch, self.confirmed)
            passed_over = frozenset(map(id, self._modules.too_fast(self._node_id, fresh)))
            await self._take_in(batch, passed_over)
            for frame in batch:
                self._waiting.popleft()
                self._waiting_bytes -= frame.message.ByteSize()
            self._stored.set()

    def _is_caught_up(self) -> bool:
        """Is everything stored that the node's spool held at its handshake? Records that the node dropped
        never arrive, nor do confirmed ones, even if they were confirmed by a store that was lost."""
        head = self._hello.spool_head
        return max(self.confirmed, self._hello.spool_confirmed) >= head or (
            bool(self._waiting) and self._waiting[0].sequence > head
        )

    def _next_batch(self) -> list[NodeFrame]:
        """The next waiting records; until the inventory is complete, only those from before the handshake.
        Later ones may be about runs that the node could not list yet and that must not count as missing; the
        same holds for its modules."""
        batch = [self._waiting[i] for i in range(min(_PER_COMMIT, len(self._waiting)))]
        if not self._inventory_complete:
            head = self._hello.spool_head
            batch = list(itertools.takewhile(lambda frame: frame.sequence <= head, batch))
        return batch

    async def _persist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try until it is stored. After a conflict the effects are computed again from the new state; a
        lasting conflict is retried with growing pauses. Raises errors that a retry cannot resolve."""
        conflicts = 0
        while True:
            try:
                await attempt()
                return
            except Conflict as error:  # an older session, a placement or an operator committed first
                conflicts += 1
                if conflicts == QUICK_CONFLICTS + 1:
                    _log.warning("intake_conflict.retried", node=self._node_id, reason=str(error))
                await asyncio.sleep(conflict_pause(conflicts))
            except Exception as error:
                if not may_pass(error):
                    raise
                _log.warning("intake_write.retried", node=self._node_id, reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _once(self, attempt: Callable[[], Awaitable[None]], *, otherwise: Callable[[], None]) -> None:
        """Run one stage of the handshake. If it fails by a fault of the controller, an error is reported and
        the session continues: the node's later reports and its next handshake carry the same facts."""
        try:
            await self._persist(attempt)
        except Exception as error:
            if ends_session(error):
                raise
            _log.exception("intake_handshake.failed", node=self._node_id)
            report = ErrorReport(
                error_code=Code.INTERNAL.name, error_message=described(error), context="handshake"
            )
            await self._store_report(report)
            otherwise()

    async def _take_in(self, batch: list[NodeFrame], passed_over: frozenset[int]) -> None:
        """Store a batch; of messages whose identity is in `passed_over` only their arrival. If the batch
        fails, its halves are stored one after the other, down to the one failing record: that one is set
        aside, reported and confirmed, so it is not sent again. A record that is blocked by an unreadable
        document waits, and all behind it."""
        try:
            await self._persist(functools.partial(self._store, batch, passed_over))
        except Exception as error:
            if ends_session(error):
                raise
            half = len(batch) // 2
            if half:
                await self._take_in(batch[:half], passed_over)
                await self._take_in(batch[half:], passed_over)
            elif awaits_repair(error):
                await self._after_repair(batch[0], error)
            else:
                await self._set_aside(batch[0], error)

    async def _after_repair(self, frame: NodeFrame, error: Exception) -> None:
        """Retry with growing pauses while the session lasts. The node keeps the record, and sends it again to
        a controller that can read its store."""
        kind = frame.kind or "unknown"
        text = f"record {frame.sequence} ({kind}) and all behind it wait: {described(error)}"
        await self._store_report(
            ErrorReport(error_code=Code.FORMAT_INVALID.name, error_message=text, context="intake")
        )
        for attempt in itertools.count(1):
            _log.warning("intake_repair.retried", node=self._node_id, kind=kind, reason=described(error))
            await asyncio.sleep(repair_pause(attempt))
            try:
                await self._persist(functools.partial(self._store, [frame]))
                return
            except NotOverwritten as again:
                error = again

    async def _set_aside(self, frame: NodeFrame, error: Exception) -> None:
        report = aside_report(frame, error)
        _log.error(
            "intake_record.failed",
            node=self._node_id,
            kind=frame.kind,
            sequence=frame.sequence,
            bytes=frame.message.ByteSize(),
            reason=described(error),
            exc_info=error,
        )
        stand_in = node_frame(DaemonMessage(spool_sequence=frame.sequence, error_report=report))
        await self._persist(functools.partial(self._store, [stand_in]))

    async def _store_report(self, report: ErrorReport) -> None:
        await self._persist(functools.partial(self._store, [node_frame(DaemonMessage(error_report=report))]))

    async def _open(self) -> None:
        """Store the runs that the node listed as alive, before any of its reports."""
        async for reported in self._instances.opening(self._node_id, self._listed):
            await self._commit(reported)
        self._opened()

    def _opened(self) -> None:
        self._instances.opened(self._node_id)

    async def _complete_inventory(self) -> None:
        """Complete the inventory: all that the node had at its handshake is stored, so the state of runs that
        it did not list is decided."""
        await self._request_exits()
        async for reported in self._instances.complete_inventory(self._node_id, self._listed):
            await self._commit(reported)
        await self._commit(Reported(), *self._modules.fold_inventory(self._node_id, self._hello))
        self._reconciled()

    async def _request_exits(self) -> None:
        """Request the exits of runs that the node did not list: it may have reported them to a controller
        whose store was lost."""
        missing = await self._instances.unaccounted(self._node_id, self._listed)
        for start in range(0, len(missing), _ENDS_AT_ONCE):
            runs = missing[start : start + _ENDS_AT_ONCE]
            answer = self._ends = asyncio.get_running_loop().create_future()
            if not self._ask(ControllerMessage(ask_run_ends=AskRunEnds(runs=runs))):
                return
            try:
                async with asyncio.timeout(_ENDS_SECONDS):
                    exits = await answer
            except TimeoutError:
                _log.warning("exits_request.failed", node=self._node_id, runs=len(missing))
                return
            self._listed.extend(exits.runs[:_ENDS_AT_ONCE])

    def exits_reported(self, ends: RunEnds) -> None:
        """The node's answer; dropped when none was requested."""
        if self._ends is not None and not self._ends.done():
            self._ends.set_result(ends)

    def _reconciled(self) -> None:
        self._inventory_complete = True
        self._listed.clear()
        self._hello.ClearField("running_instances")
        self._instances.inventory_complete(self._node_id, self._session_id)

    async def _commit(self, reported: Reported, *more: Step) -> None:
        if reported.steps or more:
            await self._ledger.commit(*reported.steps, *more)
        self._instances.stored(self._node_id, reported)

    async def _store(self, batch: list[NodeFrame], passed_over: frozenset[int] = frozenset()) -> None:
        confirmed = self.confirmed
        fresh = _unseen(batch, confirmed)
        highest = max((frame.sequence for frame in batch), default=0)
        reports = _stored_of(FrameOwner.INSTANCES, fresh)
        reported = self._instances.fold(self._node_id, reports)
        steps = [step for frame in fresh for step in self._effects(frame)]
        frames = [frame for frame in _stored_of(FrameOwner.MODULES, fresh) if id(frame) not in passed_over]
        steps += self._modules.fold(self._node_id, frames)
        if highest > confirmed:
            position = SpoolPosition(spool_id=self._spool_id, sequence=highest)
            state = self._ledger.state
            revision = state.replaced_revision(state.spools, self._node_id)
            steps.append(SPOOLS.put(self._node_id, position, expect=revision))
        await self._commit(reported, *steps)
        _log.debug("intake.stored", node=self._node_id, messages=len(batch), reports=len(reports))
        if highest:
            self._confirm(max(highest, confirmed))

    def _effects(self, frame: NodeFrame) -> list[Step]:
        """The effects of a record by itself. Those about instances and modules are folded together, so that
        several about one are one change. Records that are not stored are confirmed and skipped."""
        if frame.kind == "daemon_log_record":
            return [self._journal.append(log_record(frame.message.daemon_log_record, self._clock.now()))]
        if frame.kind == "error_report":
            return self._report(frame.message.error_report)
        if not frame.rule.stored and frame.kind not in self._unknown:
            self._unknown.add(frame.kind)
            _log.warning("intake_record.skipped", node=self._node_id, kind=frame.kind or "none")
        return []

    def _report(self, report: ErrorReport) -> list[Step]:
        """An event, up to a rate: one node must not push other nodes' events out of the history."""
        if not self._reports.take():
            self._suppressed += 1
            return []
        suppressed, self._suppressed = self._suppressed, 0
        return [error_event(self._node_id, report, suppressed=suppressed)]


def _unseen(batch: list[NodeFrame], confirmed: int) -> list[NodeFrame]:
    """The batch without records that are stored already or duplicated; sequence numbers only grow."""
    fresh = []
    for frame in batch:
        if frame.sequence and frame.sequence <= confirmed:
            continue
        confirmed = frame.sequence or confirmed
        fresh.append(frame)
    return fresh


def _stored_of(owner: FrameOwner, frames: list[NodeFrame]) -> list[NodeFrame]:
    return [frame for frame in frames if frame.rule.stored and frame.rule.owner is owner]
