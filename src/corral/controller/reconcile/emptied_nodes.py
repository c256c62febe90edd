"""Nodes that are emptied: when a drain has ended, what is left at its deadline, and how far it is.

The instances leave by the plans of their groups. Here is what concerns the node as a whole. All of it follows from the
records: a new leader goes on, with deadlines that are late at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from corral.controller.instances.drain_progress import drain_lines, drain_progress_of
from corral.controller.instances.instance_changes import order_stop
from corral.controller.instances.node_drains import deadline_left, end_drain, renew_deadline, tell_progress
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.apply_plan import Wake
from corral.controller.reconcile.ports import ReconciledInstances
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES
from corral.controller.state.ledger import Ledger, Step
from corral.controller.state.quarantine import NotOverwritten
from corral.domain.decisions import Rule
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.instance_states import Wanted
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.drain_progress import DrainProgress, drain_text
from corral.domain.records import NodeDrain, NodeRecord
from corral.system.clock import Clock

PROGRESS_SECONDS: Final = 5.0
"""At most so often the progress of one drain is published."""
_PER_COMMIT: Final = 200
_log = structlog.get_logger("corral.controller.reconcile")


class EmptiedNodes:
    """The drains of one term."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        instances: ReconciledInstances,
        clock: Clock,
        wake: Callable[[str, Wake], None],
    ) -> None:
        """`wake`: have a group checked."""
        self._ledger = ledger
        self._instances = instances
        self._clock = clock
        self._wake = wake
        self._drains: dict[str, NodeDrain | None] = {}
        """The nodes that are emptied, with their drains as they were last seen."""
        self._deadlines: dict[str, float] = {}
        """By the monotonic clock: the wall clock may be set meanwhile."""
        self._to_check: set[str] = set()
        self._told: dict[str, tuple[DrainProgress, float]] = {}
        self._progress_at: dict[str, float] = {}
        """When progress is to be published that came too soon after the last."""
        self._refused: dict[str, str] = {}
        """Why the last transaction about a node was refused."""

    def note(self, node: str, wake: Wake | None = None) -> None:
        """A node has changed, or one of its instances; `wake`: the cause, where it is the node itself."""
        stored = self._ledger.state.nodes.find(node)
        emptied = stored is not None and node in self._ledger.state.nodes.emptied
        known, drain = self._drains.get(node), stored.record.drain if stored is not None else None
        if emptied == (node in self._drains) and known == drain:
            if emptied:
                self._to_check.add(node)
            return
        if wake is not None:
            for name in self._groups_on(node):
                self._wake(name, wake)
        if not emptied:
            for kept in (self._drains, self._deadlines, self._told, self._progress_at, self._refused):
                kept.pop(node, None)
            self._to_check.discard(node)
            return
        self._to_check.add(node)
        self._drains[node] = drain
        if drain is None or drain.deadline_at is None:
            self._deadlines.pop(node, None)
        elif node not in self._deadlines or known is None or known.deadline_at != drain.deadline_at:
            boot = self._instances.workspace(cause="").boot_moment(0.0)
            left = deadline_left(drain, now=self._clock.now(), boot=boot)
            self._deadlines[node] = self._clock.monotonic() + left

    def moments(self) -> Iterator[float]:
        """When something is due without an event."""
        now = self._clock.monotonic()
        yield from (at for at in self._deadlines.values() if at > now)
        yield from self._progress_at.values()
        if self._to_check:
            yield now

    async def turn(self) -> None:
        """Look at the nodes of which something is due; each in a transaction of its own."""
        now = self._clock.monotonic()
        due = {node for node, at in self._progress_at.items() if at <= now}
        due |= {node for node, at in self._deadlines.items() if at <= now and self._has_live(node)}
        due |= self._to_check
        self._to_check = set()
        for node in due:
            self._progress_at.pop(node, None)
        for node in sorted(due):
            try:
                await self._look_at(node)
            except BaseException:
                self._to_check.add(node)
                raise

    def _has_live(self, node: str) -> bool:
        return self._ledger.state.instances.live_on(node) > 0

    async def _look_at(self, node: str) -> None:
        stored = self._ledger.state.nodes.find(node)
        if stored is None or node not in self._ledger.state.nodes.emptied:
            return
        try:
            steps = self._steps(stored.record)
        except Exception:  # one broken node delays no other
            _log.exception("node_drain.failed", node=node)
            return
        if steps:
            await self._commit(node, steps)

    async def _commit(self, node: str, steps: tuple[Step, ...]) -> None:
        """Store what was decided. A node of which a document cannot be read, and is not overwritten, delays no other, and no
        group: it is looked at again when it changes."""
        try:
            await self._ledger.commit(*steps)
        except NotOverwritten as error:
            self._to_check.discard(node)
            if self._refused.get(node) != str(error):
                self._refused[node] = str(error)
                _log.warning("node_drain.refused", node=node, reason=str(error))
        else:
            self._refused.pop(node, None)

    def _steps(self, record: NodeRecord) -> tuple[Step, ...]:
        """What is to be changed now."""
        node, drain = record.id, record.drain
        ws = self._instances.workspace(cause=f"the drain of node '{node}'")
        if drain is not None:
            ws.causes = (drain.decision, *((f"request:{drain.request}",) if drain.request else ()))
        if record.admission is Admission.DRAINING and self._is_empty(record):
            end_drain(ws, node)
            _log.info("node_drain.finished", node=node, drain=drain.id if drain is not None else "")
        else:
            over = self._deadlines.get(node, float("inf")) <= self._clock.monotonic()
            if over and stop_the_rest(ws, record, live_on(self._ledger.state, node)):
                self._to_check.add(node)
            if record.admission is Admission.DRAINING:
                renew_deadline(ws, node)
            self._tell(ws, record)
        return ws.steps()

    def _is_empty(self, record: NodeRecord) -> bool:
        """Has every record of the node ended? One that cannot be read may be alive, and so may one that a node which has
        just connected has not told of yet."""
        state, node = self._ledger.state, record.id
        if self._has_live(node) or (
            record.state is NodeState.ONLINE and not self._instances.signals.inventory_complete(node)
        ):
            return False
        held = (stored.record.instance for stored in state.reservations.of_node(node))
        return not any(state.quarantine.holds(INSTANCES.name, id) for id in held)

    def _tell(self, ws: Workspace, record: NodeRecord) -> None:
        """Publish the progress where it has changed, not too often. Nor is it looked for more often: each end of thousands
        of instances would look at all that are left."""
        node, now = record.id, self._clock.monotonic()
        drain = record.drain
        if drain is None or record.admission is not Admission.DRAINING:
            return
        told, at = self._told.get(node, (None, now - PROGRESS_SECONDS))
        if now - at < PROGRESS_SECONDS:
            self._progress_at[node] = at + PROGRESS_SECONDS
            return
        lines = drain_lines(self._ledger.state, node, players=self._instances.signals.players)
        progress = drain_progress_of(drain, lines)
        self._told[node] = progress, now
        if progress != told:
            tell_progress(ws, node, progress)

    def _groups_on(self, node: str) -> Iterable[str]:
        return sorted({each.group for each in live_on(self._ledger.state, node)})


def live_on(state: ClusterState, node: str) -> list[InstanceRecord]:
    """The instances on a node that have not ended."""
    return [stored.record for stored in state.instances.of_node(node) if live(stored.record.state)]


def stop_the_rest(ws: Workspace, node: NodeRecord, there: Iterable[InstanceRecord]) -> bool:
    """Stop what is left on a node at the deadline of its drain, players or not; is there more than one transaction takes?
    What is to be restarted stops already."""
    left = [each for each in there if each.wanted is not Wanted.STOP]
    for each in left[:_PER_COMMIT]:
        reason = f"{drain_text(node)}, and the time for that is over"
        order_stop(ws, each, reason=reason, rule=Rule.DRAIN_DEADLINE, node=node.id)
    return len(left) > _PER_COMMIT
