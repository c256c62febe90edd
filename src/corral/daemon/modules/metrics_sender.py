"""What modules of a node measure goes to the controller, which shows it with the name of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.modules.metrics_frame import metrics_frame
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.lifecycle.host_metrics import host_metrics, leak_metric
from corral.modules.services.module_metrics import ModuleMetrics
from corral.system.aio.tasks import Tasks
from corral.wire.v1.link_pb2 import DaemonMessage

EVERY_SECONDS: Final = 5.0
_log = structlog.get_logger("corral.daemon.modules.metrics")


class MetricsShipping:
    """Listens to sessions; while there is one, all figures go up every few seconds. Only the latest counts:
    what was not sent yet is replaced."""

    def __init__(
        self,
        *,
        metrics: ModuleMetrics,
        engine: ModuleEngine,
        leaked: Callable[[], Mapping[str, int]] = dict,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._metrics = metrics
        self._engine = engine
        self._leaked = leaked
        self._every = every
        self._tasks = Tasks()

    def on_connected(self, connection: LinkConnection) -> None:
        self.on_disconnected()
        if connection.supports.modules:
            self._tasks.spawn(self._ship(connection), name="modules/metrics")

    def on_disconnected(self) -> None:
        self._tasks.cancel()

    async def close(self) -> None:
        """Nothing of it runs afterwards."""
        await self._tasks.close()

    async def _ship(self, connection: LinkConnection) -> None:
        told = False
        while True:
            try:
                told = self._send(connection, told=told)
            except Exception as error:  # figures are not worth a daemon that stops telling them
                _log.error("module.metrics_not_sent", exc_info=error)
            await asyncio.sleep(self._every)

    def _send(self, connection: LinkConnection, *, told: bool) -> bool:
        """Whether there was anything. What has gone is told once by a frame without it."""
        frame = metrics_frame(
            figures=[*host_metrics(self._engine.all_live()), leak_metric(self._leaked())],
            families=self._metrics.families(),
            dropped=self._metrics.dropped,
        )
        if frame.families or told:
            connection.outbox.replace("module_metrics", DaemonMessage(module_metrics=frame))
        return bool(frame.families)
