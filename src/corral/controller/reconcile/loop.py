"""The reconciler: checks a group after each change that affects it, and all groups periodically.

Commits wake it; its own state is only which groups are to be checked and when. For a group that cannot reach
its desired state the reason is recorded; the next change of what it may have lacked, or the periodic check,
triggers it again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.controller.reconcile.apply_plan import Wake, keep_groups
from corral.controller.reconcile.auto_deployments import AutoDeployments
from corral.controller.reconcile.dependents import Dependents
from corral.controller.reconcile.due_schedules import compute_schedules
from corral.controller.reconcile.emptied_nodes import EmptiedNodes
from corral.controller.reconcile.lost_nodes import LostNodes, Observation
from corral.controller.reconcile.ports import ReconciledInstances, SessionLookup
from corral.controller.reconcile.wake_causes import (
    event_behind,
    joined,
    mended_by,
    node_changed,
    wake_for,
    woken_by_players,
)
from corral.controller.sessions.commit_faults import conflict_pause
from corral.controller.state.collections import (
    CATALOG,
    DEPLOYMENTS,
    GROUPS,
    INSTANCES,
    MODULE_PACKAGES,
    NODE_LEDGERS,
    NODES,
    RESERVATIONS,
    TEMPLATES,
)
from corral.controller.state.ledger import Ledger
from corral.domain.events import Event, EventType
from corral.domain.groups.instance_records import is_draining
from corral.domain.ids import NodeId
from corral.errors import Code, CorralError
from corral.store.port import Change, Commit
from corral.store.store_errors import Conflict, Fenced, StoreUnavailable
from corral.system.aio.tasks import Tasks, set_within
from corral.system.clock import Clock
from corral.system.controller_config import ReconcileSection

_SHORT_SWEEP_SECONDS: Final = 0.2
_SWEPT: Final = 50
"""The most groups short of instances that are checked at once."""
_RETRY_SECONDS: Final = 1.0
_FLOOR: Final = "the periodic look at every group"
_DUE: Final = "the time at which it was to be looked at again"
_MAY_MEND: Final = frozenset(
    {NODE_LEDGERS.name, RESERVATIONS.name, TEMPLATES.name, CATALOG.name, MODULE_PACKAGES.name}
)
"""A change of these collections may provide what a group lacked."""
_TAKES: Final = frozenset({EventType.INSTANCE_SCHEDULED, EventType.GROUP_SHORT})
"""Events with which nothing becomes free."""
_log = structlog.get_logger("corral.controller.reconcile")


class Reconciler:
    """`follow` every commit, then `run` until cancelled."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        instances: ReconciledInstances,
        sessions: SessionLookup,
        observation: Observation,
        config: ReconcileSection,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._instances = instances
        self._signals = instances.signals
        self._signals.wake = self._players_changed
        self._observation = observation
        self._config = config
        self._clock = clock
        self._dirty: dict[str, Wake] = {}
        self._short: set[str] = set()
        """Groups with fewer instances than wanted."""
        self._to_sweep: dict[str, Wake] = {}
        """Those of them that are to be checked because something was released."""
        self._dependents = Dependents()
        self._capacity_changed = False
        self._freed_by: Event | None = None
        """The last event since the last sweep that may have freed what groups lack."""
        self._swept_at = 0.0
        self._floor_at = 0.0
        self._collected_at = 0.0
        self._due: dict[str, tuple[float, Wake]] = {}
        """When a group is to be looked at again though nothing happens, and because of what."""
        self._lost = LostNodes(
            ledger=ledger,
            instances=instances,
            sessions=sessions,
            offline_after_seconds=config.offline_after_seconds,
            clock=clock,
        )
        self._emptied = EmptiedNodes(
            ledger=ledger, instances=instances, clock=clock, wake=self._wake_by_drain
        )
        self._auto = AutoDeployments(ledger=ledger, instances=instances, clock=clock)
        self._wake = asyncio.Event()
        self._signals.observing = True

    @property
    def observing(self) -> bool:
        """Nodes are waited for; nothing is started yet."""
        return self._signals.observing

    # triggers

    def begin(self) -> None:
        """Read the state before the first commit of this term. A record that fails here delays no other, and
        no start of the controller."""
        for name, _ in self._ledger.state.groups.items():
            self._noted(self._note_group, name)
        self._auto.begin()
        nodes = self._ledger.state.nodes
        for node in {*self._ledger.state.instances.nodes(), *nodes.emptied}:
            self._noted(self._note_node, node)

    def _noted(self, note: Callable[[str], None], name: str) -> None:
        try:
            note(name)
        except Exception:
            _log.exception("reconcile_record.skipped", subject=name)

    def follow(self, commit: Commit) -> None:
        """Note the groups and nodes that a commit touched. Synchronous."""
        self._auto.follow(commit)
        for change in commit.changes:
            if change.collection == GROUPS.name:
                self._note_group(change.id)
                self._mark(change.id, commit, change)
            elif change.collection == INSTANCES.name:
                self._note_instance(commit, change)
            elif change.collection == DEPLOYMENTS.name:
                found = self._ledger.state.deployments.find(change.id)
                if found is not None:
                    self._mark(found.record.group, commit, change)
            elif change.collection == NODES.name:
                self._note_node(change.id, node_changed(commit, change))
                self._note_capacity(commit)
            elif change.collection in _MAY_MEND:
                self._note_capacity(commit)

    def _note_instance(self, commit: Commit, change: Change) -> None:
        stored = self._ledger.state.instances.find(change.id)
        event = event_behind(commit, change, "")
        group = stored.record.group if stored is not None else event.data.get("group") if event else None
        if not isinstance(group, str):
            return
        self._mark(group, commit, change)
        if stored is not None and stored.record.node in self._ledger.state.nodes.emptied:
            self._emptied.note(stored.record.node)
        for name in self._dependents.of(group):
            if name in self._short:
                self._mark(name, commit, change, own=False)

    def _players_changed(self, group: str, instance: str) -> None:
        """The players of an instance may need another number of instances."""
        self._dirty[group] = joined(self._dirty.get(group), woken_by_players(instance))
        self._wake.set()

    def _note_capacity(self, commit: Commit) -> None:
        self._capacity_changed = True
        freed_by = next((event for event in commit.events if event.type not in _TAKES), None)
        self._freed_by = freed_by or self._freed_by
        self._wake.set()

    def resync(self) -> None:
        """Check every group and node as if each had changed."""
        state = self._ledger.state
        self._dirty |= {name: Wake(cause="everything is looked at anew") for name, _ in state.groups.items()}
        self._capacity_changed = True
        self._wake.set()
        self.begin()

    def inventory_complete(self, node: NodeId) -> None:
        """The inventory of this node is complete: it can be decided which copy of a returned instance goes."""
        self._observation.reported(node)
        self._signals.note_inventory(node)
        self._emptied.note(node)
        instances = self._ledger.state.instances
        there = [stored.record for stored in instances.of_node(node)]
        for name in {record.group for record in there if instances.replacement_of(record.id)}:
            self._wake_waiting(name, f"node '{node}' has reported everything")

    def instance_emptied(self, id: str) -> None:
        """This instance has no players any more: it may be stopped then, or its group held until then."""
        stored = self._ledger.state.instances.find(id)
        group = self._ledger.state.groups.find(stored.record.group) if stored is not None else None
        if stored is None or group is None:
            return
        held = group.record.hold is not None and group.record.hold.when_empty
        if held or is_draining(stored.record):
            self._wake_waiting(group.record.spec.name, f"the last player has left '{id}'")

    def _wake_waiting(self, name: str, cause: str) -> None:
        """Have a group checked before it is due, for the reason for which it waits."""
        _, waits = self._due.get(name, (0.0, Wake(cause="")))
        wake = msgspec.structs.replace(waits, cause=cause)
        self._dirty[name] = joined(self._dirty.get(name), wake)
        self._wake.set()

    def _mark(self, group: str, commit: Commit, change: Change, *, own: bool = True) -> None:
        """Have a group checked; `own`: the change is of the group itself or of one of its instances."""
        new = wake_for(commit, change, group, self._ledger.state, own=own)
        self._dirty[group] = joined(self._dirty.get(group), new)
        self._wake.set()

    def _note_group(self, name: str) -> None:
        """Note the end of the group's pause, what it depends on, and whether it is short of instances."""
        stored = self._ledger.state.groups.find(name)
        self._dependents.note(name, stored.record.spec if stored is not None else None)
        self._signals.note_pause(name)
        waits = stored is not None and (stored.record.reason or stored.record.drain_wait is not None)
        if waits:
            self._short.add(name)
        else:
            self._short.discard(name)

    def _note_node(self, node: str, wake: Wake | None = None) -> None:
        self._lost.note(node)
        self._emptied.note(node, wake)
        self._wake.set()

    def _wake_by_drain(self, group: str, wake: Wake) -> None:
        self._dirty[group] = joined(self._dirty.get(group), wake)

    # actions

    async def run(self) -> None:
        """Observe, then reconcile, until this term is over."""
        conflicts = 0
        async with Tasks() as tasks:
            tasks.spawn(self._observe(), name="reconcile/observe")
            while True:
                self._wake.clear()
                try:
                    await compute_schedules(self._ledger.state, self._about_to_look_at, self._clock)
                    await self._turn()
                    conflicts = 0
                except (StoreUnavailable, Conflict) as error:
                    _log.warning("reconcile.retried", reason=str(error))
                    conflicts += 1
                    lasting = isinstance(error, Conflict)
                    await asyncio.sleep(conflict_pause(conflicts) if lasting else _RETRY_SECONDS)
                    continue
                except Fenced:
                    return
                except CorralError as error:
                    if error.code is Code.SHUTTING_DOWN:
                        return
                    _log.exception("reconcile.failed")
                    await asyncio.sleep(_RETRY_SECONDS)
                if self._dirty and not self.observing:
                    await asyncio.sleep(0)  # a pass that changes nothing waits for nothing
                else:
                    await set_within(self._wake, self._pause())

    async def _observe(self) -> None:
        silent = await self._observation.finish(self._config.observe_seconds)
        if silent:
            _log.warning("reconcile_observation.finished", silent=sorted(silent)[:20], count=len(silent))
        self.end_observation()

    def end_observation(self) -> None:
        """Nodes were waited for long enough: act from now on."""
        self._signals.observing = False
        self._wake.set()

    async def settle(self) -> float:
        """Work until nothing is left to do at this moment, for those who do not `run` it; the seconds until then."""
        await self._turn()
        while self._dirty and not self.observing:
            await self._turn()
        return self._pause()

    async def _turn(self) -> None:
        """Some of each kind of work: what keeps one kind busy all the time delays no other."""
        await self._instances.numbers.refill()
        await self._lost.turn()
        if self.observing:
            return
        await self._emptied.turn()
        await self._auto.turn()
        self._collect()
        if self._dirty:
            await self._keep()

    def _about_to_look_at(self) -> list[str]:
        """The groups of the next pass, as far as they are known."""
        now = self._clock.monotonic()
        if self.observing:
            return []
        if now >= self._floor_at:
            return [name for name, _ in self._ledger.state.groups.items()]
        return [*self._dirty, *(name for name, (due, _) in self._due.items() if now >= due)]

    def _collect(self) -> None:
        """Add the groups that are due."""
        last, now = self._collected_at, self._clock.monotonic()
        self._collected_at = now
        for name, wake in [(name, wake) for name, (due, wake) in self._due.items() if now >= due]:
            del self._due[name]
            self._dirty[name] = joined(self._dirty.get(name), wake)
        for name, deadline in self._signals.pause_deadlines().items():
            if last < deadline <= now:  # one that was over before was handled, or cannot be
                self._dirty.setdefault(name, Wake(cause="the end of its pause"))
        everything = now >= self._floor_at
        sweeps = everything or now >= self._swept_at + _SHORT_SWEEP_SECONDS
        if sweeps and (self._capacity_changed or self._to_sweep):
            self._swept_at = now
            self._sweep(None if everything else _SWEPT)
        if everything:  # last: every other reason explains more
            self._floor_at = now + self._config.floor_seconds
            for name, _ in self._ledger.state.groups.items():
                self._dirty.setdefault(name, Wake(cause=_FLOOR))

    def _sweep(self, most: int | None) -> None:
        """Have groups checked that are short of instances, some at a time; None: all."""
        if self._capacity_changed:
            self._capacity_changed = False
            self._to_sweep |= dict.fromkeys(self._short, mended_by(self._freed_by))
            self._freed_by = None
        for name in list(itertools.islice(self._to_sweep, most)):
            mended = self._to_sweep.pop(name)
            if name in self._short and not (name in self._dirty and self._dirty[name].causes):
                self._dirty[name] = mended

    def _pause(self) -> float:
        """Wait until something is due without an event."""
        now = self._clock.monotonic()
        moments = [self._floor_at] if not self.observing else []
        moments += self._lost.moments()
        if not self.observing:
            # A pause that was over at the last check was handled, or cannot be: it is no reason to wake
            # again.
            ends = self._signals.pause_deadlines().values()
            moments += [deadline for deadline in ends if deadline > self._collected_at]
            moments += [due for due, _ in self._due.values()]
            moments += (*self._emptied.moments(), *self._auto.moments())
            if self._to_sweep or (self._capacity_changed and self._short):
                moments.append(self._swept_at + _SHORT_SWEEP_SECONDS)
        return max(0.0, min(moments, default=now + self._config.floor_seconds) - now)

    def _explained(self, name: str, wake: Wake) -> Wake:
        """What became free meanwhile causes what follows, where no other cause is known."""
        unknown = name in self._short and not wake.causes and self._freed_by is not None
        return mended_by(self._freed_by) if unknown else wake

    async def _keep(self) -> None:
        """Bring the groups that are to be checked to their desired state, in one transaction."""
        wakes, self._dirty = self._dirty, {}
        try:
            async with self._instances.placing:
                wakes = {name: self._explained(name, wake) for name, wake in wakes.items()}
                ws = self._instances.workspace(cause=_FLOOR)
                result = keep_groups(ws, wakes, signals=self._signals.now())
                if steps := ws.steps():
                    await self._ledger.commit(*steps)
        except BaseException:
            self._dirty = {**wakes, **self._dirty}
            raise
        for name, found in result.groups.items():
            self._note_due(name, found.wake_at, ws.now, wakes[name])
        by_group = {name: wake.cause for name, wake in wakes.items()}
        _log.debug("reconcile_pass.finished", causes=by_group, steps=len(steps), unfinished=result.unfinished)
        for name in result.unfinished:
            self._dirty[name] = joined(self._dirty.get(name), wakes[name])

    def _note_due(self, name: str, at: dt.datetime | None, now: dt.datetime, wake: Wake) -> None:
        """Have a group looked at again at a time, for the reason for which it waits."""
        known = self._due.pop(name, None)
        if at is not None:
            due = self._clock.monotonic() + max(0.0, (at - now).total_seconds())
            waits = joined(known[1] if known is not None else None, wake)
            self._due[name] = due, msgspec.structs.replace(waits, cause=_DUE)
