"""All orders and queries of a controller about the instances of this node, with the list of runs it has, and the live
metrics that each new session receives again.
"""

from __future__ import annotations

import contextlib
import pathlib
from typing import Final

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, Reply, SessionListener
from corral.daemon.orders.file_change_orders import FileChangeOrders
from corral.daemon.orders.file_orders import FileOrders
from corral.daemon.orders.link_orders import LinkOrders
from corral.daemon.orders.save_orders import SaveOrders
from corral.daemon.orders.shutdown_orders import ConfirmedSpool, ShutdownOrders
from corral.daemon.runs.run_files import FoundRun, RunDirectories, RunFiles
from corral.daemon.runs.run_messages import exit_status, metrics_update, reported_players_update
from corral.daemon.runs.run_readiness import counts_players
from corral.daemon.supervise.supervision import Supervision
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.runtimes.console.log import ConsoleLog
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.wire.v1.instance_pb2 import ConsoleQuery, ConsoleQueryResult, InstanceRun
from corral.wire.v1.link_pb2 import ControllerMessage

MAX_RUNS: Final = 500


def list_runs(runs: RunDirectories, query: ConsoleQuery) -> ConsoleQueryResult:
    """The first runs of the range, or with `newest` the last ones. Reads files: in a thread."""
    most = min(query.max_lines or MAX_RUNS, MAX_RUNS)
    found = [
        run
        for run in runs.of(query.instance_id)
        if run.incarnation > query.after_run and (not query.before_run or run.incarnation < query.before_run)
    ]
    chosen = found[-most:] if query.newest else found[:most]
    listed = [_described(run) for run in chosen]
    return ConsoleQueryResult(runs=listed, more_runs=len(found) > len(chosen))


def _described(found: FoundRun) -> InstanceRun:
    """A run as its files describe it; an unreadable one is a run all the same."""
    files = RunFiles(found.path)
    run = InstanceRun(incarnation=found.incarnation)
    with contextlib.suppress(CorralError, OSError):
        if (intent := files.intent()) is not None:
            run.plan_hash = intent.order.plan_hash
            run.accepted_at_ms = intent.accepted_at_ms
            run.nonce = intent.nonce
    with contextlib.suppress(CorralError, OSError):
        if (outcome := files.outcome()) is not None:
            run.started_at_ms = outcome.started_at_ms
            run.ended_at_ms = outcome.ended_at_ms
            run.MergeFrom(InstanceRun(exit=exit_status(outcome)))
            run.crashed = outcome.state is InstanceState.CRASHED
    with contextlib.suppress(OSError), ConsoleLog(files.console) as log:
        run.first_offset, run.end_offset = log.first_offset, log.end_offset
    return run


class LiveMetrics:
    """Sends live metrics of runs, which a controller holds in memory only, to each new session."""

    def __init__(self, supervisor: InstanceSupervisor) -> None:
        self._supervisor = supervisor

    def on_connected(self, connection: LinkConnection) -> None:
        for run in self._supervisor.instances.runs():
            if run.ended:
                continue
            if counts_players(run.order):  # also one whose number is not known any more
                connection.send(metrics_update(run))
            elif run.readiness.reported_players is not None:
                connection.send(reported_players_update(run))

    def on_disconnected(self) -> None: ...


class InstanceOrders:
    """Give `handlers` and `listeners` to the link. `close` drops unanswered orders."""

    def __init__(
        self,
        supervision: Supervision,
        *,
        spool: ConfirmedSpool,
        data: pathlib.Path,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        supervisor, directories = supervision.supervisor, supervision.directories
        self._runs = LinkOrders(supervisor, supervision.services.runs)
        self._saves = SaveOrders(supervisor, directories, entropy=entropy)
        self._files = FileOrders(supervisor, directories, clock=clock)
        self._changes = FileChangeOrders(
            supervisor, directories, reserve_mb=supervision.services.reserve_mb, entropy=entropy
        )
        self._shutdowns = ShutdownOrders(
            supervisor, reporter=supervision.services.reporter, spool=spool, data=data
        )
        self.exit_ordered: Final = self._shutdowns.exit_ordered
        """Set when the daemon has to end."""
        self._contact = supervision.contact
        self.handlers: Final[dict[str, Order]] = {
            **self._runs.handlers,
            **self._saves.handlers,
            **self._files.handlers,
            **self._changes.handlers,
            **self._shutdowns.handlers,
            "start_instance": self._start,
            "pong": self._pong,
        }
        self.listeners: Final[list[SessionListener]] = [
            self._shutdowns,
            self._saves,
            self._changes,
            LiveMetrics(supervisor),
            supervision.services.known_runs,
            *([self._contact] if self._contact is not None else []),
        ]

    def _start(self, reply: Reply, message: ControllerMessage) -> None:
        if self._contact is not None:
            self._contact.ordered()
        self._runs.handlers["start_instance"](reply, message)

    def _pong(self, _: Reply, message: ControllerMessage) -> None:
        if self._contact is not None:
            self._contact.answered(message.pong.sequence)

    async def close(self) -> None:
        await self._shutdowns.close()
        await self._runs.close()
        await self._saves.close()
        await self._files.close()
        await self._changes.close()
