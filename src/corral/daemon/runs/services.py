"""Dependencies that every run on this node uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from corral.daemon.hooks.instance_hooks import InstanceHooks
from corral.daemon.node.port_probe import HeldPorts
from corral.daemon.prepare.pipeline import Preparer
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.probes.listening_sockets import SocketTables
from corral.daemon.probes.log_probe import ConsoleGrowth
from corral.daemon.runs.orphan_runs import OrphanRuns
from corral.daemon.runs.reporter import Reporter
from corral.daemon.runs.run_files import RunDirectories, RunIntent, StopOrder
from corral.daemon.workload.start_order import StartOrder
from corral.domain.ids import Incarnation, same_start
from corral.sdk.runtime import RuntimeProvider
from corral.system.clock import Clock
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import HandshakeAck


class RunConsoles(Protocol):
    """Consoles of runs on their way to the controller."""

    def attach(
        self, instance_id: str, incarnation: int, directory: str, *, ended: bool = False, nonce: str = ""
    ) -> None:
        """Follow this console from now on; `ended`: only keep it for queries. Idempotent."""

    def ended(self, instance_id: str, incarnation: int) -> None:
        """The console is complete: nothing more will be written."""

    def detach(self, instance_id: str, incarnation: int) -> None:
        """Its files go."""


class Welcomed(Protocol):
    """A session with a controller, as it began."""

    ack: HandshakeAck


class RuntimeChoice(Protocol):
    """The runtimes of this node."""

    def names(self) -> tuple[str, ...]: ...

    def get(self, name: str) -> RuntimeProvider:
        """RUNTIME_UNAVAILABLE names those there are."""

    def of(self, run_directory: str) -> RuntimeProvider:
        """The one that a run was started with."""


class KnownRuns:
    """The last runs that the controller knows of this node's instances. A node that was restored to an earlier state
    knows fewer, and does not use their incarnations again once it has received them."""

    def __init__(self) -> None:
        self._last: dict[str, Incarnation] = {}

    def on_connected(self, connection: Welcomed) -> None:
        known = {run.instance_id: Incarnation(run.incarnation) for run in connection.ack.known_runs}
        self._last = {id: max(number, self._last.get(id, number)) for id, number in known.items()}

    def on_disconnected(self) -> None:
        """The received runs are kept: a restart may come without a controller."""

    def last(self, order: StartOrder) -> Incarnation:
        """Of this start: the highest number that may have been used."""
        known = self._last.get(order.instance_id, order.incarnation)
        return max(known, order.incarnation) if same_start(known, order.incarnation) else order.incarnation


class Services(msgspec.Struct, frozen=True, kw_only=True):
    runtimes: RuntimeChoice
    preparer: Preparer
    runs: RunDirectories
    directories: WorkingDirectories
    ports: HeldPorts
    reporter: Reporter
    consoles: RunConsoles
    clock: Clock
    entropy: Entropy
    growth: ConsoleGrowth
    sockets: SocketTables
    boot_id: str
    lost: OrphanRuns
    """Runs that live here without their run directory."""
    reserve_mb: int = 0
    """Free space that no preparation may touch: with less of it nothing can be started."""
    send: Callable[[DaemonMessage], bool] = lambda _: False
    """To the connected controller; for what is not worth storing."""
    release_uids: Callable[[Callable[[str], bool]], None] = lambda _: None
    """Frees the uids of instances of which nothing is left: those whose id the argument accepts. Blocks."""
    overdue: Callable[[RunIntent], StopOrder | None] = lambda _: None
    """The order to stop a run whose node has been without a controller for too long."""
    known_runs: KnownRuns = msgspec.field(default_factory=KnownRuns)
    hooks: InstanceHooks | None = None
    """None: no daemon runs, and no module either."""

    def new_nonce(self) -> str:
        """Of one run, among all that ever had its number."""
        return new_id("n", self.entropy)

    def now_ms(self) -> int:
        """Wall time, for people."""
        return round(self.clock.now().timestamp() * 1000)
