"""Composition of a node's modules with the services that they may use."""

from __future__ import annotations

import contextlib
from typing import Final

import structlog

from corral.daemon.link.link import Order, SessionListener
from corral.daemon.link.spool import Spool
from corral.daemon.modules.controller_capabilities import ControllerCapabilities
from corral.daemon.modules.file_operations import ModuleFiles
from corral.daemon.modules.metrics_sender import MetricsSender
from corral.daemon.modules.module_host import NodeModules
from corral.daemon.modules.node_events import NodeEvents
from corral.daemon.modules.process_operations import ModuleProcesses
from corral.daemon.supervise.node_runs import NodeRuns
from corral.modules.services.event_rules import EventPace
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy

_log = structlog.get_logger("corral.daemon.modules")


class NodeModuleServices:
    """`modules.open` reads what is in the cache, `modules.begin` starts it; `close` at the end."""

    def __init__(
        self,
        *,
        config: DaemonConfig,
        node_id: str,
        spool: Spool,
        node_runs: NodeRuns,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        pace = EventPace(per_second=config.modules.events_per_second, clock=clock)
        self._events = NodeEvents(node_id=node_id, spool=spool, send=node_runs.send, clock=clock, pace=pace)
        self._capabilities = ControllerCapabilities(
            path=config.data / "modules" / "offers.json", send=node_runs.send, entropy=entropy
        )
        instances = node_runs.instances
        writers = node_runs.preparation.directories.writers
        files = ModuleFiles(directory_of=instances.directory_of, writers=writers, clock=clock)
        self._processes = ModuleProcesses(find_run=instances.find, runs=instances.runs)
        self._tasks = Tasks()
        self._tidy_again = False
        self.modules: Final = NodeModules(
            config=config,
            node_id=node_id,
            report=node_runs.reporter.report,
            operations=[*self._events.operations(), *files.operations(), *self._processes.operations()],
            remote=self._capabilities,
            on_gone=self.end_orphans,
            clock=clock,
            entropy=entropy,
        )
        self._metrics = MetricsSender(
            metrics=self.modules.metrics, engine=self.modules.engine, leaked=self.modules.leaked
        )

    @property
    def handlers(self) -> dict[str, Order]:
        return {**self.modules.handlers, **self._events.handlers, **self._capabilities.handlers}

    @property
    def listeners(self) -> list[SessionListener]:
        return [self._capabilities, self._events, self.modules, self._metrics]

    def end_orphans(self) -> None:
        """In the background: end processes beside instances whose modules are not installed any more."""
        self._tidy_again = True
        if not self._tasks:
            self._tasks.spawn(self._end_orphans(), name="modules/orphans")

    async def _end_orphans(self) -> None:
        try:
            while self._tidy_again:
                self._tidy_again = False
                await self._processes.keep_only(self.modules.installed())
        except Exception as error:
            _log.warning("orphan_stop.failed", reason=repr(error))

    async def close(self, *, budget: float) -> None:
        """Hooks first: what they did not deliver is delivered by the next daemon. Then the modules, and the
        services they used; each of them, also when one fails or is cut short."""
        async with contextlib.AsyncExitStack() as rest:
            rest.push_async_callback(self._tasks.close)
            rest.push_async_callback(self._events.close)
            rest.push_async_callback(self._capabilities.close)
            rest.push_async_callback(self._metrics.close)
            rest.push_async_callback(self.modules.close, budget=budget)
            await self.modules.hooks.close()
