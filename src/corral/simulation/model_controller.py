"""A controller without a network and a database: the real state, transactions, signals and reconciler, on a virtual clock.

Its commits are in memory at once. A change of the leader gives it a new term: what the reconciler and the signals keep in
memory only begins anew, as on another machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final, TypeVar

from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.node_candidates import KnownViews, NodeLoad, PlacementRules
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.retention import forgotten
from corral.controller.instances.start_identity import Incarnations
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.loop import Reconciler
from corral.controller.reconcile.lost_nodes import Observation
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger, Step
from corral.domain.ids import Epoch, NodeId
from corral.domain.planning.holds import Players
from corral.domain.records import BootMoment
from corral.errors import Bug
from corral.simulation.memory_store import MemoryStore
from corral.simulation.virtual_time import VirtualClock
from corral.store.port import Commit
from corral.system.clock import boot_id
from corral.system.controller_config import InstanceRetentionSection, ReconcileSection
from corral.system.entropy import Entropy

T = TypeVar("T")

NEVER_SECONDS: Final = 1_000_000_000
"""Between two looks at every group though nothing has happened: what is to be done is found without them."""
_SWEPT: Final = 500


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of something that has nothing to wait for: every commit is done at once."""
    try:
        work.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    work.close()
    raise Bug("something waits, though there is nothing to wait for in a simulation")


class ModelTerm:
    """What one leader has in memory; what the reconciler needs of `InstanceService`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        epoch: Epoch,
        clock: VirtualClock,
        entropy: Entropy,
        placing: PlacementRules,
        players: Players,
    ) -> None:
        self._ledger = ledger
        self._epoch = epoch
        self._clock = clock
        self._entropy = entropy
        self._rules = placing
        self._boot = boot_id()
        self.numbers = Incarnations(ledger, epoch=epoch)
        self.placing = asyncio.Lock()
        self.signals = PlanSignals(ledger.state, clock=clock, drift=DriftView(ledger.state), players=players)

    def workspace(self, *, cause: str) -> Workspace:
        return Workspace(
            self._ledger.state,
            cause=cause,
            now=self._clock.now(),
            epoch=self._epoch,
            entropy=self._entropy,
            numbers=self.numbers,
            boot=BootMoment(boot=self._boot, seconds=self._clock.boottime()),
            placing=self._rules,
        )


class ModelSessions:
    """The nodes that are connected."""

    def __init__(self) -> None:
        self.connected: set[str] = set()

    def find(self, node_id: NodeId) -> object | None:
        return node_id if node_id in self.connected else None


class ModelController:
    """The controller of a simulation, whoever leads."""

    def __init__(
        self,
        *,
        clock: VirtualClock,
        entropy: Entropy,
        players: Players,
        free_disk_mb: Callable[[str], int],
        floor_seconds: float = NEVER_SECONDS,
    ) -> None:
        """`players`: of an instance, as its workload reported it to the present leader; `floor_seconds`: see
        `ReconcileSection`."""
        self.state = ClusterState()
        self.sessions = ModelSessions()
        self.store = MemoryStore(self.state, clock)
        self._clock = clock
        self._entropy = entropy
        self._players = players
        self._free_disk_mb = free_disk_mb
        self._config = ReconcileSection(floor_seconds=floor_seconds)
        self._retention = InstanceRetentionSection()
        self._ledger = Ledger(self.store, self.state)
        self._awaited: set[str] = set()
        self._begin()
        self.store.followers.append(self._follow)

    def _begin(self) -> None:
        rules = PlacementRules(load=self._load, known=KnownViews())
        self.term = ModelTerm(
            self._ledger,
            epoch=self.store.epoch,
            clock=self._clock,
            entropy=self._entropy,
            placing=rules,
            players=self._players,
        )
        self._reconciler = Reconciler(
            ledger=self._ledger,
            instances=self.term,
            sessions=self.sessions,
            observation=Observation(()),
            config=self._config,
            clock=self._clock,
        )

    def _load(self, node: str) -> NodeLoad | None:
        if node not in self.sessions.connected:
            return None
        return NodeLoad(free_disk_mb=self._free_disk_mb(node))

    def _follow(self, commit: Commit) -> None:
        self.term.signals.follow(commit)
        self._reconciler.follow(commit)

    # the leader

    def begin(self, awaited: Collection[str] = ()) -> float:
        """Begin to lead, once these nodes have reported; the seconds after which they are waited for no longer."""
        self._awaited = set(awaited)
        self.term.signals.begin()
        self._reconciler.begin()
        if not self._awaited:
            self._reconciler.end_observation()
        return self._config.observe_seconds

    def change_leader(self) -> None:
        """Another controller leads: it has what is stored, and nothing of what the last one knew."""
        self.store.epoch = Epoch(self.store.epoch + 1)
        self._begin()

    def node_reported(self, node: str) -> None:
        """The inventory of a node is complete."""
        self._reconciler.inventory_complete(NodeId(node))
        self._awaited.discard(node)
        if self._reconciler.observing and not self._awaited:
            self._reconciler.end_observation()

    def end_observation(self) -> None:
        if self._reconciler.observing:
            self._reconciler.end_observation()

    def settle(self) -> float:
        """Have the reconciler do all that is to be done now; the seconds until it is to look again."""
        return finished(self._reconciler.settle())

    def players_changed(self, *instances: str) -> None:
        """Of some instances of one group."""
        self.term.signals.players_changed(*instances)

    def wanted(self, group: str) -> int:
        """How many instances of a group are to serve."""
        return self.term.signals.wanted(self.state.groups.require(group).record)

    # transactions

    def workspace(self, cause: str) -> Workspace:
        return self.term.workspace(cause=cause)

    def commit(self, steps: Sequence[Step]) -> None:
        if steps:
            finished(self._ledger.commit(*steps))

    def sweep(self) -> None:
        """Drop the records of instances that ended long ago, as the housekeeping does."""
        now = self._clock.now()
        self.commit(forgotten(self.state, config=self._retention, now=now, limit=_SWEPT))
