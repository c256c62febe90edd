"""A state without a store: what a workspace describes is applied at once."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Sequence

from corral.controller.instances.node_candidates import KnownViews, NodeLoad, PlacementRules
from corral.controller.instances.node_inventory import ListedRuns, add_listed, reconcile_listed
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.run_match import Stray
from corral.controller.instances.start_identity import StartTickets
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.apply_plan import Wake, keep_groups
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CATALOG, NODES, TEMPLATES
from corral.controller.state.ledger import Step
from corral.domain.event_schemas.catalog import data_fault
from corral.domain.events import Cursor, Draft, Event
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.ids import Epoch, NodeId, first_incarnation
from corral.domain.node_states import NodeState
from corral.domain.planning.plan_results import PlanResult
from corral.domain.planning.planner import DEFAULT_LIMITS, PassLimits, plan
from corral.domain.planning.scaling import wanted_count
from corral.domain.planning.schedules import scheduled
from corral.domain.planning.signals import Signals
from corral.domain.records import BootMoment, NodeRecord
from corral.domain.templates import TemplateRecord, TemplateSettings, TemplateVersion
from corral.store.port import Append, Change, Commit, Delete, Put
from corral.system.entropy import SystemEntropy
from corral.wire.v1.instance_pb2 import RunningInstance

TICKETS = StartTickets(lambda: (b"k" * 32,))
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
N1 = NodeId("n1")


class Numbers:
    def __init__(self) -> None:
        self._count = itertools.count(10)

    def take(self):
        return first_incarnation(next(self._count))


class StillPaused(Signals):
    """No pause is over; nothing is known of players."""

    def pause_over(self, group: str) -> bool:
        return False


class World:
    """Nodes, groups and instances in memory."""

    signals: Signals = StillPaused()

    def __init__(self) -> None:
        self.state = ClusterState()
        self.now = NOW
        self.events: list[Event] = []
        self.decisions: list[Append] = []
        self.followers: list[Callable[[Commit], None]] = []
        """Called with each commit, once it is in the state."""
        self._numbers = Numbers()
        load = NodeLoad(free_disk_mb=100_000)
        self._rules = PlacementRules(load=lambda _: load, known=KnownViews())
        self.add_node(N1)

    def add_node(self, id: NodeId, *, memory: int = 1000, **fields) -> None:
        facts = {
            "id": id,
            "state": NodeState.ONLINE,
            "state_since": NOW,
            "reason": "",
            "enrolled_at": NOW,
            "serials": (),
            "address": f"{id}.example",
            "memory_mb": memory,
            "runtimes": ("process",),
        }
        self.apply([NODES.put(id, NodeRecord(**facts | fields), expect=None)])

    def add_template(self, name: str, *hashes: str, **settings) -> TemplateRecord:
        """A template with a version for each hash; the last is the current one."""
        versions = tuple(
            TemplateVersion(
                number=number,
                manifest=f"{number:064x}",
                hash=hash,
                archive_size=100,
                files=1,
                size=1,
                settings=TemplateSettings(**settings),
                created_at=NOW,
            )
            for number, hash in enumerate(hashes or (f"hash-of-{name}",), 1)
        )
        count = len(versions)
        record = TemplateRecord(
            name=name, current=count, last=count, versions=versions, created_at=NOW, updated_at=NOW
        )
        self.apply([TEMPLATES.put(name, record, expect=None)])
        return record

    def add_artifact(self, platform: str, version: str, **fields) -> CatalogRecord:
        record = CatalogRecord(
            platform=platform,
            version=version,
            created_at=NOW,
            updated_at=NOW,
            **{"file": f"{platform}.jar", "url": "https://example.org/a.jar", "sha256": "a" * 64, **fields},
        )
        self.apply([CATALOG.put(record.id, record, expect=None)])
        return record

    def reserved(self, node: str) -> list[str]:
        """The instances with a reservation on a node."""
        return [stored.record.instance for stored in self.state.reservations.of_node(node)]

    def workspace(self, cause: str = "test", request: str = "") -> Workspace:
        return Workspace(
            self.state,
            cause=cause,
            request=request,
            now=self.now,
            epoch=Epoch(1),
            entropy=SystemEntropy(),
            numbers=self._numbers,
            placing=self._rules,
            boot=self.boot_moment(),
            steady=self.steady(),
        )

    def boot_moment(self) -> BootMoment | None:
        """The present moment by a clock that cannot be set; None: there is none."""
        return None

    def steady(self) -> dt.datetime | None:
        """The time by a clock that is not set; None: by the wall clock."""
        return None

    def keep(self, name: str = "lobby") -> tuple[int, bool]:
        """Bring a group to its desired state, as the reconciler does; how many were started, and are more left?"""
        result = self.keep_all([name])
        started = [each for each in result.decisions if each.placement is not None]
        return len(started), bool(result.unfinished)

    def keep_all(self, names: Iterable[str], limits: PassLimits = DEFAULT_LIMITS) -> PlanResult:
        """One pass of the reconciler over these groups."""
        ws = self.workspace()
        wakes = {name: Wake(cause="test", causes=("event:1-1",)) for name in names}
        result = keep_groups(ws, wakes, signals=self.signals, limits=limits)
        self.apply(ws.steps())
        return result

    def wanted(self, name: str = "lobby") -> int:
        """How many instances of a group are to serve."""
        record = self.state.groups.require(name).record
        return wanted_count(record, scheduled(record.spec, self.now))

    def planned(self, names: Iterable[str]) -> PlanResult:
        """What a pass would do; nothing is done."""
        return plan(WorkspaceView(self.workspace(), self.signals), list(names))

    def apply(self, steps: Sequence[Step]) -> None:
        """What the store and the fold would do, compare-and-set included."""
        number = self.state.number + 1
        changes = []
        seen: set[tuple[str, str]] = set()
        for step in steps:
            if isinstance(step, Put | Delete):
                assert (step.collection, step.id) not in seen, "a transaction names a document once"
                seen.add((step.collection, step.id))
                body = step.body if isinstance(step, Put) else None
                changes.append(Change(collection=step.collection, id=step.id, revision=number, body=body))
        drafts = [step for step in steps if isinstance(step, Draft)]
        for draft in drafts:  # those of tests are without data
            assert not draft.data or not data_fault(draft.type, draft.data, whole=True), draft
        events = [
            Event(
                cursor=Cursor(1, len(self.events) + i + 1),
                type=d.type,
                subject=d.subject,
                at=self.now,
                data=d.data,
            )
            for i, d in enumerate(drafts)
        ]
        self.events += events
        self.decisions += [step for step in steps if isinstance(step, Append)]
        commit = Commit(
            number=number,
            epoch=Epoch(1),
            at=self.now,
            changes=tuple(changes),
            events=tuple(events),
            entries=(),
        )
        self.state.apply(commit)
        for follow in self.followers:
            follow(commit)

    def do(self, change, *args, **named):
        """Run a change on a workspace of its own and apply it."""
        ws = self.workspace()
        answer = change(ws, *args, **named)
        self.apply(ws.steps())
        return answer

    def open(self, node: NodeId, *entries: RunningInstance) -> list[Stray]:
        """A node connects and lists these."""
        ws = self.workspace()
        opening = ListedRuns(node, TICKETS, bar=ws.ledger(node).serial)
        strays = [stray for runs in _listed(entries).values() for stray in opening.fold(ws, runs)]
        self.apply(ws.steps())
        return strays

    def reconcile_listed(self, node: NodeId, *entries: RunningInstance) -> None:
        """The spool of a node that listed these is taken in."""
        ws = self.workspace()
        listed = _listed(entries)
        for stored in self.state.instances.of_node(node):
            reconcile_listed(ws, node, stored.record.id, listed.get(stored.record.id, ()))
        self.apply(ws.steps())

    def record(self, id: str):
        return self.state.instances.require(id).record

    def group(self, name: str = "lobby"):
        return self.state.groups.require(name).record

    def types(self) -> list[str]:
        return [event.type.value for event in self.events]


def _listed(entries: Sequence[RunningInstance]) -> dict[str, list[RunningInstance]]:
    listed: dict[str, list[RunningInstance]] = {}
    add_listed(listed, entries)
    return listed


def spec(name: str = "lobby", **fields) -> GroupSpec:
    return GroupSpec(name=name, command=("serve",), **fields)
