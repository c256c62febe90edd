"""Composition of the daemon: `open_daemon` opens everything in order and closes it in the stages of the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator
from typing import Final

import structlog

from corral.daemon.cache.cache import NodeCache, open_cache
from corral.daemon.console.consoles import NodeConsoles
from corral.daemon.link.connection import CurrentConnection
from corral.daemon.link.controller_contact import ControllerContact
from corral.daemon.link.link import DaemonLink, Order
from corral.daemon.link.spool import LogForwarding, Spool, open_spool
from corral.daemon.modules.module_host import NodeModules
from corral.daemon.modules.wiring import NodeModuleServices
from corral.daemon.node import host_info
from corral.daemon.node.data_directory import DAEMON_ROLE, make_data_directory
from corral.daemon.node.enrolment import identify
from corral.daemon.node.identity import Identity, publish_authorities
from corral.daemon.node.known_controllers import KnownControllers
from corral.daemon.orders.instance_orders import InstanceOrders, list_runs
from corral.daemon.orders.local_socket import LocalSocket
from corral.daemon.orders.node_commands import NodeCommandOrders
from corral.daemon.runs.run_files import RunDirectories
from corral.daemon.supervise.handshake import NodeHandshake, advertised_address
from corral.daemon.supervise.node_runs import NodeRuns
from corral.daemon.supervise.supervision import NodeRuntime, Supervision
from corral.domain.ids import NodeId
from corral.system.addresses import raise_descriptors
from corral.system.aio.tasks import Tasks, first_of
from corral.system.clock import Clock, SystemClock
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy, SystemEntropy
from corral.system.files import DirectoryLock
from corral.system.log_ring import LogPort
from corral.system.logger import log_plainly
from corral.system.logs import start_logging
from corral.system.service.loop_watch import LoopWatch
from corral.system.service.process import Shutdown, run_service
from corral.version import VERSION

_log = structlog.get_logger("corral.daemon")
_MODULES_SHARE: Final = 0.25
"""Share of the shutdown budget: within their stage modules end by themselves, and are killed by name after that."""
_STAGE_SHARES: Final = {"link": 0.4, "modules": 0.5, "instances": 0.5, "spool": 0.8, "rest": 1.0}
"""The stages of the shutdown in their order, each with its share of what is left of the budget."""


class DaemonApp:
    """An open daemon: it has its identity, supervises the runs, and connects. Made by `open_daemon`."""

    def __init__(
        self,
        *,
        identity: Identity,
        spool: Spool,
        cache: NodeCache,
        parts: NodeModuleServices,
        supervision: Supervision,
        link: DaemonLink,
        linked: asyncio.Task[None],
        exit_ordered: asyncio.Event,
        shutdown: Shutdown,
    ) -> None:
        self.identity: Final = identity
        self.cache: Final = cache
        self.supervision: Final = supervision
        self.link: Final = link
        self._spool = spool
        self._parts = parts
        self._linked = linked
        self._exit_ordered = exit_ordered
        self._shutdown = shutdown

    @property
    def ready(self) -> asyncio.Event:
        """Set while there is a session with a controller."""
        return self.link.connected

    def announcement(self) -> str:
        return f"node {self.node_id}"

    @property
    def node_id(self) -> NodeId:
        return self.identity.node_id

    @property
    def modules(self) -> NodeModules:
        return self._parts.modules

    async def run(self) -> None:
        """Run the link; returns when a controller ordered the daemon to end, and raises only when the link fails in a
        way that needs a restart."""
        linked, *_ = await first_of(self._linked, self._exit_ordered, name="daemon/exit")
        if linked is not None:
            linked.result()

    async def stop(self) -> None:
        """Detach, never kill: close the link, write what must not be lost, release the data directory. Leaving
        `open_daemon` does it, too."""
        await self._shutdown.run()


@contextlib.asynccontextmanager
async def open_daemon(
    config: DaemonConfig,
    *,
    logs: LogPort,
    join: str | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
) -> AsyncIterator[DaemonApp]:
    """A daemon on its data directory, until the context is left: it only ever detaches from the runs."""
    clock = clock or SystemClock()
    shutdown = Shutdown(_STAGE_SHARES, budget=config.shutdown.budget_seconds, clock=clock)
    opening = _DaemonStart(
        config, logs=logs, clock=clock, entropy=entropy or SystemEntropy(), shutdown=shutdown
    )
    try:
        yield await opening.daemon(join)
    finally:
        await shutdown.run()


class _DaemonStart:
    """The order in which a daemon is opened. Each step takes what the steps before it returned, and adds its
    closing to the shutdown at once."""

    def __init__(
        self, config: DaemonConfig, *, logs: LogPort, clock: Clock, entropy: Entropy, shutdown: Shutdown
    ) -> None:
        self._config = config
        self._logs = logs
        self._clock = clock
        self._entropy = entropy
        self._shutdown = shutdown

    async def daemon(self, join: str | None) -> DaemonApp:
        """Lock the data directory, enrol with a join token, adopt the runs, and begin to connect."""
        data = self._config.data
        make_data_directory(data)
        rest = contextlib.AsyncExitStack()
        self._shutdown.at("rest", rest.aclose)
        rest.enter_context(DirectoryLock(data, DAEMON_ROLE))
        await rest.enter_async_context(LoopWatch())
        runtime = await NodeRuntime.open(data, self._config.instances)
        rest.push_async_callback(runtime.close)
        machine_id = host_info.machine_id(self._config.node.machine_id, data, self._entropy)
        memory = KnownControllers(data, self._config.controllers)
        identity = await identify(self._config, memory, machine_id=machine_id, join=join)
        publish_authorities(data, identity)
        spool = self._open_spool(identity, rest)
        lister = functools.partial(list_runs, RunDirectories(data))
        consoles = await rest.enter_async_context(NodeConsoles(self._clock, list_runs=lister))
        cache = await rest.enter_async_context(open_cache(self._config, self._clock, self._entropy))
        current = CurrentConnection()
        node_runs = NodeRuns(
            self._config,
            node_id=identity.node_id,
            address=advertised_address(self._config),
            cache=cache,
            spool=spool,
            entropy=self._entropy,
            send=current.send,
        )
        parts = await self._open_modules(identity, spool, node_runs)
        supervision = await self._supervise(runtime, node_runs, consoles, parts)
        orders = InstanceOrders(supervision, spool=spool, data=data, clock=self._clock, entropy=self._entropy)
        self._shutdown.at("instances", orders.close)
        commands = self._command_orders(identity, supervision, cache, parts)
        link = DaemonLink(
            data=data,
            identity=identity,
            memory=memory,
            spool=spool,
            host=self._host_facts(machine_id, spool, supervision, parts),
            settings=self._config.link,
            clock=self._clock,
            entropy=self._entropy,
            current=current,
            orders=orders.handlers | commands | console_orders(consoles) | cache.handlers | parts.handlers,
            listeners=[consoles, cache, *orders.listeners, *parts.listeners],
        )
        return DaemonApp(
            identity=identity,
            spool=spool,
            cache=cache,
            parts=parts,
            supervision=supervision,
            link=link,
            linked=await self._connect(link, identity.node_id, supervision),
            exit_ordered=orders.exit_ordered,
            shutdown=self._shutdown,
        )

    def _command_orders(
        self, identity: Identity, supervision: Supervision, cache: NodeCache, parts: NodeModuleServices
    ) -> dict[str, Order]:
        commands = NodeCommandOrders(
            supervision, node_id=identity.node_id, cache=cache.status, modules=parts.modules.set_entries
        )
        self._shutdown.at("instances", commands.close)
        return commands.handlers

    def _open_spool(self, identity: Identity, rest: contextlib.AsyncExitStack) -> Spool:
        spool = open_spool(self._config, self._entropy)

        async def close() -> None:
            _log.info("daemon.stopped", node=identity.node_id)
            await spool.close()

        self._shutdown.at("spool", close)
        rest.callback(self._logs.add_sink(LogForwarding(spool)))
        return spool

    async def _open_modules(
        self, identity: Identity, spool: Spool, node_runs: NodeRuns
    ) -> NodeModuleServices:
        """On return the stored modules are known; none of them runs yet."""
        parts = NodeModuleServices(
            config=self._config,
            node_id=identity.node_id,
            spool=spool,
            node_runs=node_runs,
            clock=self._clock,
            entropy=self._entropy,
        )
        budget = self._shutdown.budget * _MODULES_SHARE
        self._shutdown.at("modules", functools.partial(parts.close, budget=budget))
        await parts.modules.open()
        return parts

    async def _supervise(
        self, runtime: NodeRuntime, node_runs: NodeRuns, consoles: NodeConsoles, parts: NodeModuleServices
    ) -> Supervision:
        """Adoption and the boot of modules run concurrently; starts wait for the modules."""
        supervision = Supervision(
            config=self._config,
            node_runs=node_runs,
            runtime=runtime,
            consoles=consoles,
            clock=self._clock,
            entropy=self._entropy,
            hooks=parts.modules.hooks,
            contact=ControllerContact(self._config.data, clock=self._clock),
        )
        self._shutdown.at("instances", supervision.end)
        parts.modules.begin()
        await supervision.begin()
        parts.end_orphans()
        return supervision

    def _host_facts(
        self, machine_id: str, spool: Spool, supervision: Supervision, parts: NodeModuleServices
    ) -> NodeHandshake:
        return NodeHandshake(
            config=self._config,
            machine_id=machine_id,
            entropy=self._entropy,
            logs=self._logs,
            supervision=supervision,
            spool=spool,
            modules=parts.modules.set_entries,
        )

    async def _connect(
        self, link: DaemonLink, node_id: NodeId, supervision: Supervision
    ) -> asyncio.Task[None]:
        """Accept orders: from the local socket, then over the link. Both end first in a shutdown, the socket before
        the link."""
        tasks, sockets = Tasks(), contextlib.AsyncExitStack()
        self._shutdown.at("link", tasks.close)
        self._shutdown.at("link", sockets.aclose)
        await sockets.enter_async_context(LocalSocket(self._config.data, supervision.supervisor))
        _log.info("daemon.started", node=node_id, version=VERSION, data=str(self._config.data))
        return tasks.spawn(link.run(), name=f"daemon/link/{node_id}", awaited=True)


def console_orders(consoles: NodeConsoles) -> dict[str, Order]:
    """Frames about consoles; queries are answered over the data channel."""
    return {
        "console_ack": lambda _, message: consoles.on_ack(message.console_ack),
        "console_query": lambda _, message: consoles.answer(message.console_query),
    }


def run_daemon(config: DaemonConfig, *, join: str | None = None, parent_fd: int | None = None) -> int:
    """Run a daemon until it is asked to stop; returns the exit code."""
    log_plainly(sys.stderr)
    make_data_directory(config.data)
    raise_descriptors()  # before the keeper is started: it and the daemon hold several for every run
    with start_logging(
        role=DAEMON_ROLE, directory=config.data / "logs", level=config.log.level, format=config.log.format
    ) as logs:
        return run_service(
            lambda: open_daemon(config, logs=logs, join=join), dumps=config.data / "logs", parent_fd=parent_fd
        )
