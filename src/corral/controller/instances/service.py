"""Instances in one term: workspaces for changes, commands, the dispatcher, and waits for a state."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Collection

from corral.controller.instances.dispatch import Dispatcher, RunTokens
from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.instance_commands import InstanceCommands
from corral.controller.instances.node_candidates import KnownViews, NodeLoad, PlacementRules
from corral.controller.instances.node_commands import NodeCommands
from corral.controller.instances.node_drain_orders import NodeDrainOrders
from corral.controller.instances.orders import ApiAddress
from corral.controller.instances.plan_signals import Metric, PlanSignals
from corral.controller.instances.stage_events import StageEvents
from corral.controller.instances.start_identity import Incarnations, Repair, StartTickets
from corral.controller.instances.workspace import Workspace
from corral.controller.sessions.session_registry import Sessions
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES, NODES, ONLY
from corral.controller.state.ledger import Actor, Ledger
from corral.controller.state.mirrors import StoredRecord
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.ids import Epoch, Incarnation, NodeId, same_start
from corral.domain.node_states import NodeState
from corral.domain.planning.holds import Players
from corral.domain.records import BootMoment
from corral.errors import Code, Retryable
from corral.store.port import Commit
from corral.system.clock import Clock, boot_id
from corral.system.controller_config import PlacementSection
from corral.system.entropy import Entropy


class Waiters:
    """Calls that wait for an instance or a node, woken by each commit that changes it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._for_nodes: set[asyncio.Event] = set()

    def follow(self, commit: Commit) -> None:
        if not self._waiting and not self._for_nodes:
            return
        for change in commit.changes:
            if change.collection == INSTANCES.name:
                for event in self._waiting.get(change.id, ()):
                    event.set()
            elif change.collection == NODES.name:
                for event in self._for_nodes:
                    event.set()

    def resync(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()
        for event in self._for_nodes:
            event.set()

    async def returned(self, nodes: Collection[str], timeout: float) -> bool:
        """Whether one of these nodes has a session, now or within `timeout` seconds."""
        changed = asyncio.Event()
        self._for_nodes.add(changed)
        try:
            async with asyncio.timeout(timeout):
                while not any(self._is_online(id) for id in nodes):
                    changed.clear()
                    await changed.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self._for_nodes.discard(changed)

    def _is_online(self, id: str) -> bool:
        stored = self._state.nodes.find(id)
        return stored is not None and stored.record.state is NodeState.ONLINE

    async def settled(
        self, id: str, incarnation: int, accepts: Callable[[InstanceRecord], bool], timeout: float
    ) -> StoredRecord[InstanceRecord]:
        """The record as soon as `wanted` holds, its run is over, or another start replaced it.

        NOT_FOUND when it was removed, TIMEOUT when it takes too long; the caller checks which case it is.
        """
        changed = asyncio.Event()
        self._waiting.setdefault(id, set()).add(changed)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    changed.clear()
                    stored = self._state.instances.require(id)
                    record = stored.record
                    other = not same_start(record.incarnation, Incarnation(incarnation))
                    if accepts(record) or other or not live(record.state):
                        return stored
                    await changed.wait()
        except TimeoutError:
            found = self._state.instances.require(id).record
            raise Retryable(
                Code.TIMEOUT,
                f"instance '{id}' is still {found.state} after {timeout:g} s",
                hint=found.reason or None,
            ) from None
        finally:
            self._waiting[id].discard(changed)
            if not self._waiting[id]:
                del self._waiting[id]


class InstanceService:
    """Workspaces for changes, commands, and waits for the results of changes."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        sessions: Sessions,
        epoch: Epoch,
        clock: Clock,
        entropy: Entropy,
        tokens: RunTokens,
        ticket_keys: Callable[[], tuple[bytes, ...]],
        api: ApiAddress = ApiAddress(),  # noqa: B008  # frozen
        resend_seconds: float = 5.0,
        placement: PlacementSection,
        players: Players = lambda _: None,
        metric: Metric = lambda _id, _name: None,
    ) -> None:
        """`players`: the number of players of an instance, where it is known; `metric`: of one of its metrics."""
        self._ledger = ledger
        self._sessions = sessions
        self._epoch = epoch
        self._clock = clock
        self._boot = boot_id()
        self._began = clock.now() - dt.timedelta(seconds=clock.boottime())
        self._entropy = entropy
        self._waiters = Waiters(ledger.state)
        self.numbers = Incarnations(ledger, epoch=epoch)
        self.commands = InstanceCommands(ledger=ledger, sessions=sessions, entropy=entropy)
        self.stages = StageEvents(ledger, clock=clock)
        self.node_commands = NodeCommands(links=sessions, entropy=entropy)
        self.tickets = StartTickets(ticket_keys, stamp=lambda: ledger.state.authority.revision(ONLY))
        self.dispatcher = Dispatcher(
            state=ledger.state,
            sessions=sessions,
            clock=clock,
            tokens=tokens,
            tickets=self.tickets,
            api=api,
            resend_seconds=resend_seconds,
        )
        self.drain_orders = NodeDrainOrders(ledger=ledger, sessions=sessions, clock=clock)
        self._placement = PlacementRules(
            cpu_overcommit=placement.cpu_overcommit,
            wait_reconnect_seconds=placement.wait_reconnect_seconds,
            load=self._load,
            known=KnownViews(),
        )
        self.placing = asyncio.Lock()
        """Held from the search for a place until its commit: otherwise many concurrent starts would choose
        the same place and conflict with each other repeatedly."""
        self.drift = DriftView(ledger.state)
        self.signals = PlanSignals(
            ledger.state, clock=clock, drift=self.drift, players=players, metric=metric
        )
        self.documents = asyncio.Lock()
        """Held from the check of group documents until their commit: a document may depend on others, which the
        transaction does not write."""

    def workspace(
        self, *, cause: str, now: dt.datetime | None = None, request: str = "", by: str = ""
    ) -> Workspace:
        """A new transaction on behalf of `cause`, for the request with this id; `by`: the name of who made that."""
        return Workspace(
            self._ledger.state,
            cause=cause,
            now=now or self._clock.now(),
            epoch=self._epoch,
            entropy=self._entropy,
            numbers=self.numbers,
            left_alone=self._sessions.left_alone,
            boot=BootMoment(boot=self._boot, seconds=self._clock.boottime()),
            steady=self._began + dt.timedelta(seconds=self._clock.boottime()),
            request=request,
            by=by,
            placing=self._placement,
        )

    def _load(self, node: str) -> NodeLoad | None:
        """The present load of a node; None: it is not connected."""
        live = self._sessions.live(NodeId(node))
        if live is None:
            return None
        stored = self._ledger.state.nodes.find(node)
        cpus = stored.record.cpus if stored is not None else 0
        known = live.total_disk_mb > 0
        return NodeLoad(cpu_mean=live.cpu_mean * cpus, free_disk_mb=live.free_disk_mb if known else None)

    def follow(self, commit: Commit) -> None:
        """A commit is in memory: send the orders it calls for, and wake the calls that wait for it."""
        self.drain_orders.follow(commit)
        self.dispatcher.follow(commit)
        self._waiters.follow(commit)
        self.signals.follow(commit)

    def resync(self) -> None:
        """Check every node and instance, and wake all waiting calls."""
        self.drain_orders.resync()
        self.dispatcher.resync()
        self._waiters.resync()
        self.signals.begin()

    async def repair_numbers(self, actor: Actor) -> Repair:
        """Set the counter of starts from the numbers that records use; see `Incarnations.repair`."""
        return await self.numbers.repair(actor)

    async def returned(self, nodes: Collection[str], *, timeout: float) -> bool:
        """Whether one of these nodes connects within `timeout` seconds; see `Waiters.returned`."""
        return await self._waiters.returned(nodes, timeout)

    async def settled(
        self, id: str, incarnation: int, accepts: Callable[[InstanceRecord], bool], timeout: float
    ) -> StoredRecord[InstanceRecord]:
        """Wait until `wanted` holds for a run; see `Waiters.settled`."""
        return await self._waiters.settled(id, incarnation, accepts, timeout)
