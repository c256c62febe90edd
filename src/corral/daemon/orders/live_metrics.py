"""What the controller keeps in memory about runs is told again to each that comes."""

from __future__ import annotations

from corral.daemon.link.connection import Connection
from corral.daemon.runs.run_messages import figures_update
from corral.daemon.supervise.supervisor import Supervisor


class LiveFigures:
    """Listens to sessions."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def on_connected(self, connection: Connection) -> None:
        for run in self._supervisor.instances.runs():
            if run.readiness.players is not None and not run.ended:
                connection.send(figures_update(run))

    def on_disconnected(self) -> None: ...
