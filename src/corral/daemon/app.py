"""The daemon, put together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Final

import structlog

from corral.daemon.cache.cache import NodeCache, open_cache
from corral.daemon.console.consoles import Consoles
from corral.daemon.link.link import Link, Order
from corral.daemon.link.spool import LogForwarding, Spool, open_spool
from corral.daemon.modules.module_host import NodeModules
from corral.daemon.modules.wiring import ModuleParts
from corral.daemon.node import host_info
from corral.daemon.node.data_directory import DAEMON_ROLE, make_data_directory
from corral.daemon.node.enrolment import identify
from corral.daemon.node.identity import Identity
from corral.daemon.node.known_controllers import LinkMemory
from corral.daemon.orders.instance_orders import InstanceOrders
from corral.daemon.orders.local_socket import LocalSocket
from corral.daemon.orders.run_list import list_runs
from corral.daemon.runs.run_files import RunDirectories
from corral.daemon.supervise.handshake import HostFacts, advertised_address
from corral.daemon.supervise.node_runs import NodeRuns
from corral.daemon.supervise.supervision import NodeRuntime, Supervision
from corral.domain.ids import NodeId
from corral.system.addresses import raise_descriptors
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock, SystemClock
from corral.system.config_schema import DaemonConfig
from corral.system.entropy import Entropy, SystemEntropy
from corral.system.files import DirectoryLock
from corral.system.log_ring import LogPort
from corral.system.logs import start_logging
from corral.system.service.loop_watch import LoopWatch
from corral.system.service.process import Stage, run_service, run_stages
from corral.version import VERSION
from corral.wire.v1.link_pb2 import DaemonMessage

_log = structlog.get_logger("corral.daemon")
_MODULES_SHARE: Final = 0.25
"""Of the time for the daemon's end: within their stage they end themselves, and are killed by name."""


def console_orders(consoles: Consoles) -> dict[str, Order]:
    """Frames about consoles; what is asked is answered over the data channel."""
    return {
        "console_ack": lambda _, message: consoles.on_ack(message.console_ack),
        "console_query": lambda _, message: consoles.answer(message.console_query),
    }


class DaemonApp:
    """One daemon on one data directory. `start`, then `stop`; a stop only ever detaches."""

    def __init__(
        self,
        config: DaemonConfig,
        *,
        logs: LogPort,
        join: str | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self._config = config
        self._logs = logs
        self._join = join
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._stack = contextlib.AsyncExitStack()
        self._doors = contextlib.AsyncExitStack()
        self._tasks = Tasks()
        self._running: asyncio.Task[None] | None = None
        self._spool: Spool | None = None
        self._orders: InstanceOrders | None = None
        self._parts: ModuleParts | None = None
        self.supervision: Supervision | None = None
        self.cache: NodeCache
        self.link: Link
        self.identity: Identity

    @property
    def ready(self) -> asyncio.Event:
        """Set while there is a session with a controller."""
        return self.link.connected

    def announcement(self) -> str:
        return f"node {self.node_id}"

    @property
    def node_id(self) -> NodeId:
        return self.identity.node_id

    async def start(self) -> None:
        """Lock the data directory, take over what runs, enrol if asked to, and begin to connect."""
        data = self._config.data
        make_data_directory(data)
        self._stack.enter_context(DirectoryLock(data, DAEMON_ROLE))
        try:
            await self._stack.enter_async_context(LoopWatch())
            runtime = await NodeRuntime.open(data, self._config.instances)
            self._stack.push_async_callback(runtime.close)
            machine_id = host_info.machine_id(self._config.node.machine_id, data, self._entropy)
            memory = LinkMemory(data, self._config.controllers)
            self.identity = await identify(self._config, memory, machine_id=machine_id, join=self._join)
            self._spool = open_spool(self._config, self._entropy)
            self._stack.callback(self._logs.add_sink(LogForwarding(self._spool)))
            lister = functools.partial(list_runs, RunDirectories(data))
            consoles = await self._stack.enter_async_context(Consoles(self._clock, list_runs=lister))
            self.cache = await self._stack.enter_async_context(
                open_cache(self._config, self._clock, self._entropy)
            )
            node_runs = NodeRuns(
                self._config,
                node_id=self.node_id,
                address=advertised_address(self._config),
                cache=self.cache,
                spool=self._spool,
                entropy=self._entropy,
                send=self._send,
            )
            parts = await self._open_modules(self._spool, node_runs)
            supervision = await self._supervise(runtime, node_runs, consoles, parts)
            self._orders = InstanceOrders(supervision, clock=self._clock, entropy=self._entropy)
            facts = self._host_facts(machine_id, self._spool, supervision, parts)
            self.link = self._make_link(memory, self._spool, facts, consoles, self._orders, parts)
            await self._doors.enter_async_context(LocalSocket(data, supervision.supervisor))
            _log.info("daemon.started", node=self.node_id, version=VERSION, data=str(data))
            name = f"daemon/link/{self.node_id}"
            self._running = self._tasks.spawn(self.link.run(), name=name, awaited=True)
        except BaseException:
            await self.stop()
            raise

    async def _open_modules(self, spool: Spool, node_runs: NodeRuns) -> ModuleParts:
        """What is in the cache is known on return; nothing of it runs yet."""
        self._parts = ModuleParts(
            config=self._config,
            node_id=self.node_id,
            spool=spool,
            node_runs=node_runs,
            clock=self._clock,
            entropy=self._entropy,
        )
        await self._parts.modules.open()
        return self._parts

    @property
    def modules(self) -> NodeModules:
        assert self._parts is not None, "the daemon was not started"
        return self._parts.modules

    async def _supervise(
        self, runtime: NodeRuntime, node_runs: NodeRuns, consoles: Consoles, parts: ModuleParts
    ) -> Supervision:
        """Adoption and the modules' boot go side by side; starts wait for the modules."""
        self.supervision = Supervision(
            config=self._config,
            node_runs=node_runs,
            runtime=runtime,
            consoles=consoles,
            clock=self._clock,
            entropy=self._entropy,
            hooks=parts.modules.hooks,
        )
        parts.modules.begin()
        await self.supervision.begin()
        parts.end_orphans()
        return self.supervision

    def _host_facts(
        self, machine_id: str, spool: Spool, supervision: Supervision, parts: ModuleParts
    ) -> HostFacts:
        return HostFacts(
            config=self._config,
            machine_id=machine_id,
            entropy=self._entropy,
            logs=self._logs,
            supervision=supervision,
            spool=spool,
            modules=parts.modules.set_entries,
        )

    def _make_link(
        self,
        memory: LinkMemory,
        spool: Spool,
        facts: HostFacts,
        consoles: Consoles,
        orders: InstanceOrders,
        parts: ModuleParts,
    ) -> Link:
        return Link(
            data=self._config.data,
            identity=self.identity,
            memory=memory,
            spool=spool,
            host=facts,
            settings=self._config.link,
            clock=self._clock,
            entropy=self._entropy,
            orders={
                **orders.handlers,
                **console_orders(consoles),
                **self.cache.handlers,
                **parts.handlers,
            },
            listeners=[consoles, self.cache, *orders.listeners, *parts.listeners],
        )

    def _send(self, message: DaemonMessage) -> bool:
        """To the controller there is; before the link is made there is none."""
        return self._running is not None and self.link.send(message)

    async def run(self) -> None:
        """Until the link fails in a way that only a restart mends; normally for ever."""
        assert self._running is not None
        await asyncio.shield(self._running)

    async def stop(self) -> None:
        """Detach: hang up, write what must not be lost, let go of the directory."""
        stages = [
            Stage(name="link", share=0.4, action=self._hang_up),
            Stage(name="modules", share=0.5, action=self._end_modules),
            Stage(name="instances", share=0.5, action=self._let_go),
            Stage(name="spool", share=0.8, action=self._close_spool),
            Stage(name="rest", share=1.0, action=self._stack.aclose),
        ]
        await run_stages(stages, budget=self._config.shutdown.budget_seconds, clock=self._clock)

    async def _hang_up(self) -> None:
        """No more orders, from wherever."""
        await self._doors.aclose()
        await self._tasks.close()

    async def _end_modules(self) -> None:
        if self._parts is not None:
            budget = self._config.shutdown.budget_seconds * _MODULES_SHARE
            await self._parts.close(budget=budget)

    async def _let_go(self) -> None:
        if self._orders is not None:
            await self._orders.close()
        if self.supervision is not None:
            await self.supervision.end()

    async def _close_spool(self) -> None:
        if self._spool is not None:
            _log.info("daemon.stopped", node=self.node_id)
            spool, self._spool = self._spool, None
            await spool.close()


def run_daemon(config: DaemonConfig, *, join: str | None = None, parent_fd: int | None = None) -> int:
    """Run a daemon until it is told to stop; returns the exit code."""
    make_data_directory(config.data)
    raise_descriptors()  # before the keeper is started: it and we hold several for every run
    with start_logging(
        role=DAEMON_ROLE, directory=config.data / "logs", level=config.log.level, format=config.log.format
    ) as logs:
        return run_service(lambda: DaemonApp(config, logs=logs, join=join), parent_fd=parent_fd)
