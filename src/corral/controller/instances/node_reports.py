"""The reports of nodes, from the session that brought them to the transaction that stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from corral.controller.cluster_state import ClusterState
from corral.controller.instances.answers import fold_start_answer, fold_stop_answer
from corral.controller.instances.commands import Commands
from corral.controller.instances.dispatch import Dispatcher
from corral.controller.instances.handshakes import fold_judgement, fold_opening
from corral.controller.instances.reports import Stray, fold_crash, fold_report
from corral.controller.instances.sequence import Incarnations
from corral.controller.instances.wire_values import report_of, stage_name
from corral.controller.instances.workspace import Workspace
from corral.controller.sessions.reporting import Reported
from corral.controller.workload.vitals import Vitals
from corral.domain.decisions import DecisionKind
from corral.domain.ids import NodeId, SessionId
from corral.store.port import StoreUnavailable
from corral.wire.v1.instance_pb2 import InstanceStatusUpdate, SendCommandAck
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import Handshake

_LONGEST_REASON: Final = 1000
_log = structlog.get_logger("corral.controller.reports")


class InstanceReports:
    """The understanding of reports that sessions are given."""

    def __init__(
        self,
        *,
        state: ClusterState,
        workspace: Callable[[str], Workspace],
        numbers: Incarnations,
        dispatcher: Dispatcher,
        commands: Commands,
        vitals: Vitals,
        on_judged: Callable[[NodeId], None],
    ) -> None:
        self._state = state
        self._workspace = workspace
        self._numbers = numbers
        self._dispatcher = dispatcher
        self._commands = commands
        self._vitals = vitals
        self._on_judged = on_judged

    async def before_opening(self, hello: Handshake) -> None:
        await self._numbers.step_over(max((run.incarnation for run in hello.running_instances), default=0))

    def fold_opening(self, node_id: NodeId, hello: Handshake) -> Reported:
        ws = self._workspace(f"handshake of node '{node_id}'")
        return _reported(ws, node_id, fold_opening(ws, node_id, hello))

    def fold_judgement(self, node_id: NodeId, hello: Handshake) -> Reported:
        ws = self._workspace(f"handshake of node '{node_id}'")
        fold_judgement(ws, node_id, hello)
        return Reported(steps=ws.steps())

    def fold(self, node_id: NodeId, messages: Sequence[DaemonMessage]) -> Reported:
        if not messages:
            return Reported()
        ws = self._workspace(f"report of node '{node_id}'")
        strays: list[Stray] = []
        for message in messages:
            mark = ws.mark()
            try:
                stray = _fold(ws, node_id, message)
            except StoreUnavailable:
                raise
            except Exception:
                # One message that we cannot take must not keep all that follow from being stored.
                _log.exception("report.not_understood", node=node_id, kind=message.WhichOneof("payload"))
                ws.back_to(mark)
                continue
            strays += [stray] if stray else []
        return _reported(ws, node_id, strays)

    def stored(self, node_id: NodeId, reported: Reported) -> None:
        for stray in reported.strays:
            self._dispatcher.stop_stray(node_id, stray)

    def opened(self, node_id: NodeId) -> None:
        self._dispatcher.opened(node_id)

    def judged(self, node_id: NodeId, session_id: SessionId) -> None:
        self._dispatcher.judged(node_id, session_id)
        self._on_judged(node_id)

    def heard(self, node_id: NodeId, update: InstanceStatusUpdate) -> None:
        stored = self._state.instances.find(update.instance_id)
        if stored is None or stored.record.node != node_id:
            return
        incarnation = update.incarnation or stored.record.incarnation
        if update.stage:
            self._vitals.stage(
                update.instance_id, incarnation, stage_name(update.stage), update.reason[:_LONGEST_REASON]
            )
        if update.players_known or update.player_count > 0:
            self._vitals.players(
                update.instance_id,
                incarnation,
                count=max(0, update.player_count),
                maximum=max(0, update.max_players),
            )

    def order_answered(self, message: DaemonMessage) -> None:
        if message.WhichOneof("payload") == "start_instance_ack":
            self._dispatcher.answered(
                message.start_instance_ack.instance_id, message.start_instance_ack.incarnation
            )
        elif message.WhichOneof("payload") == "stop_instance_ack":
            self._dispatcher.answered(
                message.stop_instance_ack.instance_id, message.stop_instance_ack.incarnation
            )

    def command_answered(self, node_id: NodeId, ack: SendCommandAck) -> None:
        self._commands.answered(node_id, ack)


def _fold(ws: Workspace, node_id: NodeId, message: DaemonMessage) -> Stray | None:
    match message.WhichOneof("payload"):
        case "instance_status":
            report = report_of(message.instance_status)
            return fold_report(ws, node_id, report) if report else None
        case "crash_report":
            return fold_crash(ws, node_id, message.crash_report)
        case "start_instance_ack":
            return fold_start_answer(ws, node_id, message.start_instance_ack)
        case "stop_instance_ack":
            fold_stop_answer(ws, node_id, message.stop_instance_ack)
    return None


def _reported(ws: Workspace, node_id: NodeId, strays: Sequence[Stray]) -> Reported:
    """With a decision for each stray: nothing is ordered that was not decided."""
    for stray in strays:
        ws.decide(
            DecisionKind.STOP,
            group=stray.group if ws.group(stray.group) else "",
            instance=stray.id,
            reason=f"the copy on node '{node_id}' is stopped: {stray.reason}",
            inputs={"node": node_id, "incarnation": stray.incarnation},
        )
    return Reported(steps=ws.steps(), strays=tuple(strays))
