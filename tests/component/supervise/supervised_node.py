"""The supervision of one node, real in everything but the link: orders are frames, answers are kept."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from corral.daemon.console.consoles import NodeConsoles
from corral.daemon.link.controller_contact import ControllerContact
from corral.daemon.link.spool import Spool
from corral.daemon.orders.link_orders import LinkOrders
from corral.daemon.runs.run import Run
from corral.daemon.supervise.node_runs import NodeRuns
from corral.daemon.supervise.supervision import Supervision
from corral.domain.groups.group import RestartSpec, StopRungSpec
from corral.domain.groups.plans import Plan, encode_plan
from corral.domain.ids import first_incarnation
from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.node_runtimes import Runtimes
from corral.system.clock import Clock, SystemClock
from corral.system.daemon_config import DaemonConfig, InstancesSection
from corral.system.entropy import Entropy, SystemEntropy
from corral.testing.preloaded_cache import PreloadedCache
from corral.testing.runtime_nodes import open_node_runtime
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import (
    InstanceState,
    RestartPolicy,
    SendCommand,
    StartInstance,
    StopInstance,
    StopRung,
)
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.plan_pb2 import CompositionPlan

FIRST = first_incarnation(1)
SETTINGS = InstancesSection(development=True)
QUICK_LADDER = (StopRung(command="stop", wait_ms=300), StopRung(signal="SIGTERM", wait_ms=300))


def start_frame(
    id: str, command: Sequence[str], *, incarnation: int = FIRST, attempts: int = 0, **fields: Any
) -> ControllerMessage:
    """A StartInstance with a short stop ladder and no restarts, unless told otherwise."""
    fields.setdefault("stop_ladder", QUICK_LADDER)
    policy = RestartPolicy(attempts=attempts, interval_ms=300_000, max_delay_ms=60_000)
    fields.setdefault("restart_policy", policy)
    return ControllerMessage(
        start_instance=StartInstance(
            instance_id=id, group="test", command=command, incarnation=incarnation, **fields
        )
    )


def base_plan(command: Sequence[str] = (), **fields: Any) -> Plan:
    """A plan with a short stop ladder and no restarts, unless told otherwise."""
    values: dict[str, Any] = {
        "group": "test",
        "runtime": "process",
        "command": tuple(command),
        "args": (),
        "env": {},
        "variables": {},
        "memory_mb": 0,
        "cpu": 0.0,
        "pids": 0,
        "console_mb": 16,
        "max_players": 0,
        "run_as": "",
        "isolate": "shared",
        "stdin": "fifo",
        "tty": False,
        "line_buffered": False,
        "stop": (
            StopRungSpec(command="stop", wait_seconds=0.3),
            StopRungSpec(signal="SIGTERM", wait_seconds=0.3),
        ),
        "startup_timeout_seconds": 60,
        "min_alive_ms": 0,
        "max_lifetime_seconds": 0,
        "crash_keep_seconds": 3600,
        "restart": RestartSpec(attempts=0),
    }
    return Plan(**{**values, **fields})


def plan_frame(id: str, plan: Plan, *, incarnation: int = FIRST, **fields: Any) -> ControllerMessage:
    """A StartInstance that carries this plan as our controller sends it."""
    record = encode_plan(plan)
    composition = CompositionPlan(plan_hash=record.hash, canonical_json=record.body.encode())
    return ControllerMessage(
        start_instance=StartInstance(
            instance_id=id,
            group=plan.group,
            incarnation=incarnation,
            plan_hash=record.hash,
            composition_plan=composition,
            **fields,
        )
    )


class SupervisedNode:
    """`open`, orders, `close`; `open` again is the next daemon on the same directory."""

    def __init__(
        self,
        data: pathlib.Path,
        *,
        settings: InstancesSection = SETTINGS,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        config: DaemonConfig | None = None,
        spool_bytes: int = 1 << 26,
        runtimes: Callable[[Runtimes], Any] = lambda given: given,
    ) -> None:
        """`runtimes` may put something between the supervision and the runtimes of the node."""
        self.data = data
        self.spool_bytes = spool_bytes
        self._runtimes = runtimes
        self.settings = settings
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._config = config or DaemonConfig()
        self.cache = PreloadedCache(data.parent / f"{data.name}-shelf")
        self.sent: list[DaemonMessage] = []
        self.connected = True
        self.answers: list[DaemonMessage] = []
        self.supervision: Supervision
        self._opened = False

    async def open(self) -> SupervisedNode:
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.runtime = await open_node_runtime(self.data, self.settings)
        self.runtime.runtimes = self._runtimes(self.runtime.runtimes)
        self.spool = Spool.open(
            self.data / "spool", entropy=self._entropy, log_bytes=1 << 20, max_bytes=self.spool_bytes
        )
        self._consoles = await NodeConsoles(self._clock).__aenter__()
        config = msgspec.structs.replace(self._config, data=self.data, instances=self.settings)
        self.supervision = Supervision(
            config=config,
            node_runs=NodeRuns(
                config,
                node_id="node-1",
                address="node-1.example",
                cache=self.cache,
                spool=self.spool,
                entropy=self._entropy,
                send=self._send,
            ),
            runtime=self.runtime,
            consoles=self._consoles,
            clock=self._clock,
            entropy=self._entropy,
            contact=ControllerContact(self.data, clock=self._clock),
        )
        await self.supervision.begin()
        self.orders = LinkOrders(self.supervision.supervisor, self.supervision.services.runs)
        self._opened = True
        return self

    async def close(self) -> None:
        """Detach, as a daemon does."""
        if not self._opened:
            return
        self._opened = False
        await self.orders.close()
        await self.supervision.end()
        await self._consoles.__aexit__()
        await self.spool.close()
        await self.runtime.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def clear(self) -> None:
        """Kill everything and wait until nothing is left."""
        if not self._opened:
            await self.open()
        from corral.daemon.runs.run_files import StopOrder

        await self.supervision.supervisor.stop_all(StopOrder(reason="the test is over", force=True))
        await self.close()

    # orders

    def give(self, frame: ControllerMessage) -> None:
        kind = frame.WhichOneof("payload")
        assert kind is not None
        self.orders.handlers[kind](self._keep, frame)

    def _send(self, message: DaemonMessage) -> bool:
        if self.connected:
            self.sent.append(message)
        return self.connected

    def _keep(self, message: DaemonMessage) -> bool:
        self.answers.append(message)
        return True

    async def answer(self, frame: ControllerMessage, kind: str) -> Any:
        """Give an order and wait for its answer."""
        before, id = len(self.answers), getattr(frame, frame.WhichOneof("payload") or "").instance_id
        self.give(frame)

        def found() -> Any:
            for message in self.answers[before:]:
                if message.WhichOneof("payload") == kind and getattr(message, kind).instance_id == id:
                    return message
            return None

        return getattr(await eventually(found), kind)

    async def start(self, id: str, command: Sequence[str], **fields: Any) -> Any:
        return await self.answer(start_frame(id, command, **fields), "start_instance_ack")

    async def begin(self, id: str, plan: Plan, **fields: Any) -> Any:
        """Start by a plan, and wait for the answer."""
        return await self.answer(plan_frame(id, plan, **fields), "start_instance_ack")

    async def stop(
        self, id: str, *, incarnation: int = 0, force: bool = False, reason: str = "the test says so"
    ) -> Any:
        order = StopInstance(instance_id=id, incarnation=incarnation, force=force, reason=reason)
        return await self.answer(ControllerMessage(stop_instance=order), "stop_instance_ack")

    async def command(
        self, id: str, line: str, *, incarnation: int = 0, request: str = "r", **more: Any
    ) -> Any:
        order = SendCommand(instance_id=id, command=line, incarnation=incarnation, request_id=request, **more)
        return await self.answer(ControllerMessage(send_command=order), "send_command_ack")

    # what became of them

    def run(self, id: str) -> Run:
        found = self.supervision.supervisor.instances.find(id)
        assert found is not None, f"no instance {id}"
        return found

    async def settled(self, id: str) -> Run:
        """Until nothing of it is left and nothing follows."""
        await asyncio.wait_for(self.supervision.supervisor.settled(id), 30)
        return self.run(id)

    async def until(self, id: str, state: str, *, incarnation: int = 0) -> Run:
        def there() -> bool:
            run = self.supervision.supervisor.instances.find(id)
            return run is not None and run.state == state and (incarnation in (0, run.order.incarnation))

        def shown() -> str:
            run = self.supervision.supervisor.instances.find(id)
            return f"{run.name} is {run.state}: {run.reason} {run.outcome}" if run else "nothing"

        await eventually(there, state=shown)
        return self.run(id)

    async def says(self, id: str, text: str) -> None:
        """Until its console holds this text."""
        await eventually(lambda: text in self.console(id), state=lambda: self.console(id)[-500:])

    def console(self, id: str) -> str:
        with ConsoleLog(self.run(id).files.console) as log:
            return "".join(block.data.decode(errors="replace") for block in log.blocks(0, log.end_offset))

    async def reports(self) -> list[DaemonMessage]:
        """Everything in the spool, in order."""
        await self.supervision.services.reporter.settled()
        return [DaemonMessage.FromString(record.body) for record in await self.spool.take(0, limit=100_000)]

    async def told(self, id: str) -> list[str]:
        """The story of an instance as the controller hears it: `STATE:incarnation-after-first`."""
        story = []
        for message in await self.reports():
            if message.HasField("instance_status") and message.instance_status.instance_id == id:
                update = message.instance_status
                name = InstanceState.Name(update.state).removeprefix("INSTANCE_STATE_")
                story.append(f"{name}:{update.incarnation - FIRST}")
            elif message.HasField("crash_report") and message.crash_report.instance_id == id:
                story.append(f"crash:{message.crash_report.incarnation - FIRST}")
        return story

    async def last_status(self, id: str) -> Any:
        found = [
            message.instance_status
            for message in await self.reports()
            if message.HasField("instance_status") and message.instance_status.instance_id == id
        ]
        return found[-1]

    async def crash(self, id: str) -> Any:
        found = [
            message.crash_report
            for message in await self.reports()
            if message.HasField("crash_report") and message.crash_report.instance_id == id
        ]
        return found[-1]


def with_settings(**changes: Any) -> InstancesSection:
    return msgspec.structs.replace(SETTINGS, **changes)
