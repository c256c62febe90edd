"""Everything that a controller may order or ask about the instances of this node.

What the controller keeps in memory about runs is told again to each that comes.
"""

from __future__ import annotations

from typing import Final

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, SessionListener
from corral.daemon.orders.file_orders import FileOrders
from corral.daemon.orders.link_orders import LinkOrders
from corral.daemon.orders.save_orders import SaveOrders
from corral.daemon.runs.run_messages import metrics_update
from corral.daemon.supervise.supervision import Supervision
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.system.clock import Clock
from corral.system.entropy import Entropy


class LiveMetrics:
    """Listens to sessions."""

    def __init__(self, supervisor: InstanceSupervisor) -> None:
        self._supervisor = supervisor

    def on_connected(self, connection: LinkConnection) -> None:
        for run in self._supervisor.instances.runs():
            if run.readiness.players is not None and not run.ended:
                connection.send(metrics_update(run))

    def on_disconnected(self) -> None: ...


class InstanceOrders:
    """Give `handlers` and `listeners` to the link. `close` drops what is not answered yet."""

    def __init__(self, supervision: Supervision, *, clock: Clock, entropy: Entropy) -> None:
        supervisor, directories = supervision.supervisor, supervision.directories
        self._runs = LinkOrders(supervisor, supervision.services.runs)
        self._saves = SaveOrders(supervisor, directories, entropy=entropy)
        self._files = FileOrders(supervisor, directories, clock=clock)
        self.handlers: Final[dict[str, Order]] = {
            **self._runs.handlers,
            **self._saves.handlers,
            **self._files.handlers,
        }
        self.listeners: Final[list[SessionListener]] = [
            self._saves,
            LiveMetrics(supervisor),
            supervision.services.known_runs,
        ]

    async def close(self) -> None:
        await self._runs.close()
        await self._saves.close()
        await self._files.close()
