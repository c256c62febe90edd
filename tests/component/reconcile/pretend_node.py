"""A node that speaks the real protocol and only pretends to run anything; what it does is scripted."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Callable
from typing import Any, Self

import msgspec

from corral.daemon.node.identity import Identity
from corral.domain.groups.plans import Plan
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import Pong

S = wire.InstanceState
PERMANENT = wire.START_FAILURE_DISPOSITION_PERMANENT
TRANSIENT = wire.START_FAILURE_DISPOSITION_TRANSIENT


def refuse(code: str, message: str = "no", *, disposition: int = PERMANENT, retry_after: int = 0):
    """A behaviour for `on_start`: a negative ack."""

    def answer(order: wire.StartInstance) -> wire.StartInstanceAck:
        return wire.StartInstanceAck(
            instance_id=order.instance_id,
            incarnation=order.incarnation,
            accepted=False,
            error_code=code,
            error_message=message.format(port=order.port),
            stage=wire.START_PREPARATION_STAGE_VALIDATION,
            failure_disposition=disposition,
            retry_after_seconds=retry_after,
        )

    return answer


class PretendNode:
    """Enrolled once; `connect` and `drop` as often as wanted. Reports wait in its spool meanwhile."""

    def __init__(self, identity: Identity, address: str, **handshake: Any) -> None:
        self.identity = identity
        self.address = address
        self.runs: dict[str, wire.RunningInstance] = {}
        self.starts: list[wire.StartInstance] = []
        self.stops: list[wire.StopInstance] = []
        self.commands: list[wire.SendCommand] = []
        self.asked: list[ControllerMessage] = []
        """What it does not answer by itself."""
        self.on_start: Callable[[wire.StartInstance], wire.StartInstanceAck | None] | None = None
        self.deaf = False
        self.slow_stops = False
        self.acknowledges = True
        """Of commands: those who speak the published protocol only do not."""
        self._handshake = handshake
        self._spool: dict[int, DaemonMessage] = {}
        self._written = 0
        self._link: ScriptedDaemon | None = None
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        """A stream takes one write at a time, and both the orders and the test make us speak."""

    @classmethod
    async def enrol(cls, controller: Any, directory: pathlib.Path, name: str, **handshake: Any) -> Self:
        token = await controller.join_token(name)
        identity = await enrolled_identity(directory / name, token=token, node_id=name)
        return cls(identity, controller.grpc_address, **handshake)

    @property
    def ordered(self) -> list[wire.StartInstance]:
        """The first order for each run: one whose answer takes long is sent again."""
        first: dict[tuple[str, int], wire.StartInstance] = {}
        for start in self.starts:
            first.setdefault((start.instance_id, start.incarnation), start)
        return list(first.values())

    @property
    def id(self) -> str:
        return self.identity.node_id

    @property
    def written(self) -> int:
        """The highest number in its spool, ever."""
        return self._written

    @property
    def plans(self) -> list[Plan]:
        """What it was told to start, in the order of `starts`."""
        return [
            msgspec.json.decode(start.composition_plan.canonical_json, type=Plan) for start in self.starts
        ]

    async def connect(self, *, running: bool = True, head: int | None = None, **fields: Any) -> None:
        """Open a session the way a daemon does: say what is there, then send what is not confirmed."""
        self._link = ScriptedDaemon(self.identity, self.address)
        settings = {
            "spool_id": f"spool-{self.id}",
            "runtimes": ["process"],
            "total_memory_mb": 4096,
            "available_cpus": 4,
            "advertise_address": f"{self.id}.example",
            "running_instances": list(self.runs.values()) if running else [],
            "spool_head": self._written if head is None else head,
            **self._handshake,
            **fields,
        }
        await self._link.greet(**settings)
        if self._spool:
            await self._link.send(DaemonMessage(batch=DaemonBatch(messages=self._spool.values())))
        self._task = asyncio.create_task(self._serve(self._link), name=f"pretend/{self.id}")

    def forget_everything(self) -> None:
        """Its disk is new: no runs, no spool."""
        self.runs.clear()
        self._spool.clear()
        self._written = 0

    async def drop(self) -> None:
        """Lose the stream; everything else stays."""
        link, self._link = self._link, None
        if link is not None:
            await link.hang_up()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()

    async def _serve(self, link: ScriptedDaemon) -> None:
        with contextlib.suppress(Exception):
            while self._link is link:
                frame = await link.read()
                batch = frame.batch.messages if frame.WhichOneof("payload") == "batch" else [frame]
                for message in batch:
                    await self._obey(message)

    async def _obey(self, message: ControllerMessage) -> None:
        match message.WhichOneof("payload"):
            case "ping":
                await self.tell(DaemonMessage(pong=Pong(sequence=message.ping.sequence)))
            case "spool_ack":
                self._spool = {n: m for n, m in self._spool.items() if n > message.spool_ack.sequence}
            case "start_instance":
                self.starts.append(message.start_instance)
                if not self.deaf:
                    await self._start(message.start_instance)
            case "stop_instance":
                self.stops.append(message.stop_instance)
                if not self.deaf:
                    await self._stop(message.stop_instance)
            case "send_command":
                self.commands.append(message.send_command)
                if self.acknowledges:
                    await self._command(message.send_command)
            case _:
                self.asked.append(message)

    # orders

    async def _start(self, order: wire.StartInstance) -> None:
        refusal = self.on_start(order) if self.on_start else None
        if refusal is not None:
            await self.tell(DaemonMessage(start_instance_ack=refusal))
            return
        known = self.runs.get(order.instance_id)
        if known is None or known.incarnation < order.incarnation:
            self.runs[order.instance_id] = wire.RunningInstance(
                instance_id=order.instance_id,
                group=order.group,
                port=order.port,
                incarnation=order.incarnation,
                ports=order.ports,
                memory_mb=order.memory_mb,
                plan_hash=order.plan_hash,
                ticket=order.ticket,
                state=S.INSTANCE_STATE_SCHEDULED,
            )
            ack = wire.StartInstanceAck(
                instance_id=order.instance_id, incarnation=order.incarnation, accepted=True
            )
            await self.tell(DaemonMessage(start_instance_ack=ack))
            for state in (S.INSTANCE_STATE_PREPARING, S.INSTANCE_STATE_STARTING, S.INSTANCE_STATE_RUNNING):
                await self.report(order.instance_id, state)

    async def _stop(self, order: wire.StopInstance) -> None:
        run = self.runs.get(order.instance_id)
        if run is None or run.incarnation != order.incarnation:
            ack = wire.StopInstanceAck(
                instance_id=order.instance_id,
                incarnation=order.incarnation,
                accepted=False,
                error_code="STALE_INCARNATION" if run else "NOT_FOUND",
            )
            await self.tell(DaemonMessage(stop_instance_ack=ack))
            return
        ack = wire.StopInstanceAck(
            instance_id=order.instance_id,
            incarnation=order.incarnation,
            accepted=True,
            state=S.INSTANCE_STATE_STOPPING,
        )
        await self.tell(DaemonMessage(stop_instance_ack=ack))
        await self.report(order.instance_id, S.INSTANCE_STATE_STOPPING)
        if not self.slow_stops or order.force:
            await self.stopped(order.instance_id)

    async def _command(self, order: wire.SendCommand) -> None:
        run = self.runs.get(order.instance_id)
        accepted = run is not None and run.incarnation == order.incarnation
        ack = wire.SendCommandAck(
            request_id=order.request_id,
            instance_id=order.instance_id,
            incarnation=order.incarnation,
            accepted=accepted and order.command != "refuse",
            error_code="" if accepted and order.command != "refuse" else "INPUT_NOT_READ",
            error_message="it does not read",
            unread_bytes=17,
        )
        if order.command != "silence":
            await self.tell(DaemonMessage(send_command_ack=ack))

    # reports

    async def tell(self, message: DaemonMessage) -> None:
        async with self._writing:
            if self._link is not None:
                await self._link.send(message)

    async def spool(self, message: DaemonMessage) -> None:
        """Keep it until it is confirmed, and send it if somebody is there."""
        self._written += 1
        message.spool_sequence = self._written
        self._spool[self._written] = message
        await self.tell(message)

    async def report(self, id: str, state: int, **fields: Any) -> None:
        run = self.runs[id]
        run.state = state
        run.pid = 4711
        await self.spool(
            DaemonMessage(
                instance_status=wire.InstanceStatusUpdate(
                    instance_id=id,
                    incarnation=run.incarnation,
                    state=state,
                    pid=run.pid,
                    started_at_ms=1_700_000_000_000,
                    readiness=wire.READINESS_READY if state == S.INSTANCE_STATE_RUNNING else 0,
                    **fields,
                )
            )
        )

    async def count_players(self, id: str, count: int | None) -> None:
        """A number of players, which is not kept for later; None: it does not know it any more."""
        update = wire.InstanceStatusUpdate(
            instance_id=id,
            incarnation=self.runs[id].incarnation,
            state=self.runs[id].state,
            readiness=wire.READINESS_READY,
            players_known=count is not None,
            player_count=count or 0,
        )
        await self.tell(DaemonMessage(instance_status=update))

    async def stopped(self, id: str) -> None:
        """Nothing is left of it, as ordered."""
        exit = wire.ExitStatus(known=True, outcome="stopped", summary="exit 0", rung="command: stop")
        await self.report(id, S.INSTANCE_STATE_STOPPED, exit=exit)
        del self.runs[id]

    async def crash(self, id: str, *, code: int = 1, restart: bool = False) -> None:
        """It ended without being asked to; with `restart` the node starts it again by itself."""
        run = self.runs[id]
        following = run.incarnation + 1 if restart else 0
        exit = wire.ExitStatus(
            known=True, code=code, outcome="crashed", summary=f"exit {code}", crash_class="unknown"
        )
        await self.spool(
            DaemonMessage(
                crash_report=wire.CrashReport(
                    instance_id=id,
                    group=run.group,
                    incarnation=run.incarnation,
                    exit_code=code,
                    exit=exit,
                    crash_class="unknown",
                    signature="boom",
                    log_tail=["one", "two"],
                    uptime_ms=12,
                    restarted_as=following,
                    ticket=run.ticket,
                )
            )
        )
        if not restart:
            await self.report(id, S.INSTANCE_STATE_CRASHED, exit=exit)
            del self.runs[id]
            return
        run.incarnation = following
        await self.report(id, S.INSTANCE_STATE_SCHEDULED)
