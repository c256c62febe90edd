"""Reports of nodes, from the session that received them to the transaction that stores them."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import structlog

from corral.controller.instances.dispatch import STRAYS_HEEDED, Dispatcher
from corral.controller.instances.instance_commands import InstanceCommands
from corral.controller.instances.node_commands import NodeCommands
from corral.controller.instances.node_drain_orders import NodeDrainOrders
from corral.controller.instances.node_inventory import ListedRuns, add_listed, is_missing, reconcile_listed
from corral.controller.instances.order_answers import fold_start_answer, fold_stop_answer
from corral.controller.instances.report_values import report_of, stage_name
from corral.controller.instances.reports import fold_crash, fold_report
from corral.controller.instances.run_match import StartOwnership, Stray, start_ownership
from corral.controller.instances.stage_events import StageEvents
from corral.controller.instances.start_identity import Incarnations, StartTickets
from corral.controller.instances.workspace import Workspace
from corral.controller.sessions.frame_receivers import RefusedReports, Reported
from corral.controller.state.cluster_state import ClusterState
from corral.controller.workload.vitals import Vitals
from corral.domain.causes import request_of
from corral.domain.decisions import DecisionKind
from corral.domain.ids import NodeId, SessionId
from corral.domain.node_claims import reported_players
from corral.store.store_errors import StoreUnavailable
from corral.system import log_context
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.wire.frame_table import NodeFrame
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.instance_pb2 import (
    CrashReport,
    InstanceStatusUpdate,
    RunName,
    RunningInstance,
    SendCommandAck,
    StartInstanceAck,
    StopInstanceAck,
)
from corral.wire.v1.node_pb2 import NodeCommandResult, ShutdownNodeAck

T = TypeVar("T")
InstanceReport = InstanceStatusUpdate | CrashReport | StartInstanceAck | StopInstanceAck
"""Frames about instances that are stored."""
PORTION: Final = 500
"""The number of listed instances of a handshake that one commit stores."""
_LONGEST_REASON: Final = 1000
CRASHES_PER_MINUTE: Final = 60
CRASHES_AT_ONCE: Final = 200
"""The burst of crashes of one node. Beyond that a crash replaces the previous one."""
CRASH_RATE: Final = "crash_rate"
_MOST_DECIDED: Final = 10_000
_EXECUTED: Final = (wire.INSTANCE_STATE_STARTING, wire.INSTANCE_STATE_RUNNING)
"""States in which the text of a report with a stage is what readiness waits for."""
_log = structlog.get_logger("corral.controller.instances")


class InstanceReports:
    """Reports of nodes, for the sessions that receive them."""

    def __init__(
        self,
        *,
        state: ClusterState,
        workspace: Callable[[str], Workspace],
        numbers: Incarnations,
        tickets: StartTickets,
        dispatcher: Dispatcher,
        drain_orders: NodeDrainOrders,
        commands: InstanceCommands,
        node_commands: NodeCommands,
        vitals: Vitals,
        stages: StageEvents,
        refused: RefusedReports,
        clock: Clock,
        on_inventory_complete: Callable[[NodeId], None],
    ) -> None:
        self._state = state
        self._workspace = workspace
        self._numbers = numbers
        self._tickets = tickets
        self._dispatcher = dispatcher
        self._drain_orders = drain_orders
        self._commands = commands
        self._node_commands = node_commands
        self._vitals = vitals
        self._stages = stages
        self._refused = refused
        self._on_inventory_complete = on_inventory_complete
        self._crash_rate = TokenBuckets[NodeId](
            burst=CRASHES_AT_ONCE, per_second=CRASHES_PER_MINUTE / 60, monotonic=clock.monotonic
        )
        self._decided: set[tuple[NodeId, str, int]] = set()
        """Strays whose stop was decided in this term: each handshake lists them again until they have ended.
        """
        self._bars = {NodeId(stored.record.node): stored.record.serial for stored in state.node_ledgers}
        """Of each node without a session in this term yet: its serial in the store when the term began.
        Starts may be placed there before it connects, and must not make a run look old that a restored store
        has forgotten."""

    # the list of a connecting node

    async def opening(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> AsyncIterator[Reported]:
        ledger = self._workspace("").ledger(node_id)
        opening = ListedRuns(node_id, self._tickets, bar=self._bars.setdefault(node_id, ledger.serial))
        runs = list((await _by_instance(listed)).values())
        unproven: list[Stray] = []
        count = 0
        for portion in _portions(runs):
            # A number that a restored store has forgotten is in use all the same: it is not given out again.
            await self._numbers.step_over(max(map(opening.adoptable, portion)))
            ws = self._workspace(f"handshake of node '{node_id}'")
            strays = [s for each in portion for s in _guarded(ws, node_id, opening.fold, ws, each) or ()]
            left_alone = [stray for stray in strays if not stray.stop]
            count += len(left_alone)
            unproven += left_alone[: STRAYS_HEEDED - len(unproven)]
            yield self._reported(ws, node_id, [stray for stray in strays if stray.stop])
            await asyncio.sleep(0)  # there may have been nothing to commit
        self._dispatcher.show_strays(node_id, unproven, count=count)
        if count:
            self._refused.count(node_id, "handshake", subject=unproven[0].id, number=count)

    async def complete_inventory(
        self, node_id: NodeId, listed: Sequence[RunningInstance]
    ) -> AsyncIterator[Reported]:
        runs = await _by_instance(listed)
        ids = [stored.record.id for stored in self._state.instances.of_node(node_id)]
        for portion in _portions(ids):
            ws = self._workspace(f"handshake of node '{node_id}'")
            for id in portion:
                _guarded(ws, node_id, reconcile_listed, ws, node_id, id, runs.get(id, ()))
            yield Reported(steps=ws.steps())
            await asyncio.sleep(0)

    async def unaccounted(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> list[RunName]:
        """The runs of this node that are alive by the records, and that it did not list."""
        runs = await _by_instance(listed)
        records = [stored.record for stored in self._state.instances.of_node(node_id)]
        return [
            RunName(instance_id=record.id, incarnation=record.incarnation)
            for record in records
            if is_missing(record, runs.get(record.id, ()))
        ]

    # later reports

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> Reported:
        if not frames:
            return Reported()
        ws = self._workspace(f"report of node '{node_id}'")
        strays: list[Stray] = []
        refused: collections.Counter[str] = collections.Counter()
        over: list[str] = []
        for frame in frames:
            about = frame.payload
            if not self._is_its_own(ws, node_id, about):
                refused[frame.kind] += 1
                if isinstance(about, InstanceStatusUpdate) and _is_over(about):
                    over.append(about.instance_id)
            with log_context.bound(request=request_of(frame.message.cause)):
                stray = _guarded(ws, node_id, self._fold, ws, node_id, about, refused)
            strays += [stray] if stray else []
        reported = self._reported(ws, node_id, strays, refused)
        return msgspec.structs.replace(reported, over=tuple(over)) if over else reported

    def _fold(
        self, ws: Workspace, node_id: NodeId, about: InstanceReport, refused: collections.Counter[str]
    ) -> Stray | None:
        match about:
            case InstanceStatusUpdate():
                report = report_of(about, ws.now)
                return fold_report(ws, node_id, report) if report else None
            case CrashReport():
                fold_crash(
                    ws,
                    node_id,
                    about,
                    proven=self._proven(node_id, about),
                    within_rate=lambda: self._within_rate(node_id, refused),
                )
            case StartInstanceAck():
                return fold_start_answer(ws, node_id, about)
            case StopInstanceAck():
                fold_stop_answer(ws, node_id, about)
        return None

    def _within_rate(self, node_id: NodeId, refused: collections.Counter[str]) -> bool:
        allowed = self._crash_rate.take(node_id)
        if not allowed:
            refused[CRASH_RATE] += 1
        return allowed

    def _is_its_own(self, ws: Workspace, node_id: NodeId, about: InstanceReport) -> bool:
        """Is the report about a run of this node? Late reports about an earlier start of the node count."""
        record = ws.instance(about.instance_id)
        if start_ownership(record, node_id, about.incarnation) is StartOwnership.KNOWN:
            return not isinstance(about, CrashReport) or record is None or about.group == record.group
        if isinstance(about, CrashReport):
            return self._proven(node_id, about)
        return record is not None and record.node == node_id

    def _proven(self, node_id: NodeId, report: CrashReport) -> bool:
        """Does the ticket prove that the node was given this start?"""
        return bool(report.ticket) and bool(
            self._tickets.proven(
                report.ticket,
                node=node_id,
                id=report.instance_id,
                group=report.group,
                incarnation=report.incarnation,
            )
        )

    def _reported(
        self,
        ws: Workspace,
        node_id: NodeId,
        strays: Sequence[Stray],
        refused: collections.Counter[str] | None = None,
    ) -> Reported:
        """The changes, with one decision per term for each stray that was the cluster's: no run of the
        cluster is stopped without a decision. A mere claim of a node writes nothing into the journals of
        other instances."""
        for stray in strays:
            if stray.ours and (node_id, stray.id, stray.incarnation) not in self._decided:
                ws.decide(
                    DecisionKind.STOP,
                    group=stray.group if ws.group(stray.group) else "",
                    instance=stray.id,
                    reason=f"the copy on node '{node_id}' is stopped: {stray.reason}",
                    inputs={"node": node_id, "incarnation": stray.incarnation},
                    causes=(f"node:{node_id}",),
                )
        return Reported(steps=ws.steps(), strays=tuple(strays), refused=dict(refused or {}))

    def stored(self, node_id: NodeId, reported: Reported) -> None:
        for stray in reported.strays:
            self._dispatcher.stop_stray(node_id, stray)
            if stray.ours and len(self._decided) < _MOST_DECIDED:
                self._decided.add((node_id, stray.id, stray.incarnation))
        if reported.over:
            self._dispatcher.strays_ended(node_id, reported.over)
        for kind, number in reported.refused.items():
            self._refused.count(node_id, kind, number=number)

    def opened(self, node_id: NodeId) -> None:
        self._bars.pop(node_id, None)
        self._dispatcher.opened(node_id)

    def inventory_complete(self, node_id: NodeId, session_id: SessionId) -> None:
        self._drain_orders.inventory_complete(node_id, session_id)
        self._dispatcher.inventory_complete(node_id, session_id)
        self._on_inventory_complete(node_id)

    def transient(self, node_id: NodeId, update: InstanceStatusUpdate, *, spooled: bool) -> None:
        stored = self._state.instances.find(update.instance_id)
        record = stored.record if stored else None
        if record is None or start_ownership(record, node_id, update.incarnation) is not StartOwnership.KNOWN:
            return
        incarnation = update.incarnation or record.incarnation
        if update.stage:
            stage = "" if update.state in _EXECUTED else stage_name(update.stage)
            reason = update.reason[:_LONGEST_REASON]
            self._vitals.stage(update.instance_id, incarnation, stage, reason)
            if stage or update.state in _EXECUTED:
                self._stages.note(record, incarnation, stage, reason)
        if spooled:
            return  # a node sends the present number of players with each new session
        if update.players_reported:
            self._vitals.players_reported_before(
                update.instance_id,
                incarnation,
                count=reported_players(update.player_count),
                maximum=reported_players(update.max_players),
            )
        elif update.players_known or update.player_count > 0:
            self._vitals.players(
                update.instance_id,
                incarnation,
                count=reported_players(update.player_count),
                maximum=reported_players(update.max_players),
                by_node=True,
            )
        elif update.incarnation:
            self._vitals.node_lost_count(update.instance_id, incarnation)

    def order_answered(self, node_id: NodeId, id: str, incarnation: int) -> None:
        self._dispatcher.answered(node_id, id, incarnation)

    def drain_answered(self, node_id: NodeId, ack: ShutdownNodeAck) -> None:
        self._drain_orders.answered(node_id, ack)

    def command_answered(self, node_id: NodeId, ack: SendCommandAck) -> None:
        if not self._commands.answered(node_id, ack):
            self._refused.count(node_id, "send_command_ack")

    def node_command_answered(self, node_id: NodeId, result: NodeCommandResult) -> None:
        if not self._node_commands.answered(node_id, result):
            self._refused.count(node_id, "node_command_result")


def _is_over(update: InstanceStatusUpdate) -> bool:
    return update.state in (wire.INSTANCE_STATE_STOPPED, wire.INSTANCE_STATE_CRASHED)


async def _by_instance(listed: Sequence[RunningInstance]) -> dict[str, list[RunningInstance]]:
    """The list of a handshake, by instance; yields to the loop in between."""
    found: dict[str, list[RunningInstance]] = {}
    for portion in _portions(listed):
        add_listed(found, portion)
        await asyncio.sleep(0)
    return found


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + PORTION] for start in range(0, len(items), PORTION))


def _guarded(ws: Workspace, node_id: NodeId, fold: Callable[..., T], *args: Any) -> T | None:
    """A report that fails to fold must not keep the following reports from being stored."""
    mark = ws.mark()
    try:
        return fold(*args)
    except StoreUnavailable:
        raise
    except Exception:
        _log.exception("report.failed", node=node_id)
        ws.back_to(mark)
        return None
