"""P3: one planning pass over 1,000 groups with 10,000 instances on 200 nodes, of which 1 % need a place; and a pass
after one event, over the one group that it concerns.

A pass is what the reconciler does between two commits: plan, and make the changes that are committed. The state is in
memory, as a controller has it; nothing is stored. The floor is a bare loop that compares the free memory of each node
with each start.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import time
from typing import Any, Final

import structlog

from benchmarks.figures import percentile, result
from benchmarks.placed_records import Numbers
from benchmarks.sizes import sized
from corral.controller.instances.node_candidates import KnownViews, PlacementRules
from corral.controller.instances.revisions import make_revision
from corral.controller.instances.starts import reserve
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.apply_plan import Wake, keep_groups
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import GROUPS, NODES
from corral.controller.state.ledger import Step
from corral.domain.groups.group import GroupSpec, PortSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, LeasedPort, Readiness
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec, ScheduleSpec
from corral.domain.ids import Epoch, GroupName, InstanceId, NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import NodeState
from corral.domain.planning.plan_results import PlanResult
from corral.domain.planning.planner import PassLimits
from corral.domain.records import NodeRecord
from corral.store.port import Change, Commit, Delete, Put
from corral.system.entropy import SystemEntropy

GROUPS_OF_ALL: Final = sized(1_000, 200)
NODES_OF_ALL: Final = 200
EACH: Final = 10
MISSING: Final = 100
FOLLOWING: Final = sized(200, 20)
"""How many groups follow their players and have schedules in the second kind of full pass."""
PASSES: Final = sized(30, 2)
EVENTS: Final = sized(200, 5)
_NOW: Final = dt.datetime.now(dt.UTC)
_WIDTH: Final = 40


class State:
    """The state of a controller in memory, and transactions on it."""

    def __init__(self, *, following: int = 0) -> None:
        """`following`: how many of the groups follow their players, each with two schedules."""
        self.state = ClusterState()
        self._numbers = Numbers()
        self._rules = PlacementRules(known=KnownViews())
        self._apply([NODES.put(node.id, node, expect=None) for node in map(_node, range(NODES_OF_ALL))])
        groups = [_group(number, follows=number < following) for number in range(GROUPS_OF_ALL)]
        self._apply([GROUPS.put(each.spec.name, each, expect=None) for each in groups])
        self.names = [each.spec.name for each in groups]
        ws = self._workspace()
        for name in self.names:  # as their first starts have left them
            make_revision(ws, name, by="bench", trigger="start")
        short = {number * GROUPS_OF_ALL // MISSING for number in range(MISSING)}
        for number, name in enumerate(self.names):
            for ordinal in range(1, EACH + 1 - (number in short)):
                record = self._instance(ws, name, number, ordinal)
                ws.put_instance(record)
                reserve(ws, record, cpu=0.1)
        self._apply(ws.steps())
        self.short = [self.names[number] for number in sorted(short)]

    def run_pass(self, names: list[str], limits: PassLimits) -> tuple[PlanResult, float]:
        """One pass whose changes are thrown away; its time in ms."""
        gc.collect()
        wakes = {name: Wake(cause="bench") for name in names}
        began = time.perf_counter()
        ws = self._workspace()
        found = keep_groups(ws, wakes, limits=limits)
        ws.steps()
        return found, (time.perf_counter() - began) * 1000

    def _workspace(self) -> Workspace:
        return Workspace(
            self.state,
            cause="bench",
            now=_NOW,
            epoch=Epoch(1),
            entropy=SystemEntropy(),
            numbers=self._numbers,
            placing=self._rules,
        )

    def _apply(self, steps: list[Step] | tuple[Step, ...]) -> None:
        number = self.state.number + 1
        changes = tuple(
            Change(
                collection=step.collection,
                id=step.id,
                revision=number,
                body=step.body if isinstance(step, Put) else None,
            )
            for step in steps
            if isinstance(step, Put | Delete)
        )
        self.state.apply(
            Commit(number=number, epoch=Epoch(1), at=_NOW, changes=changes, events=(), entries=())
        )

    def _instance(self, ws: Workspace, group: str, number: int, ordinal: int) -> InstanceRecord:
        node = (number * EACH + ordinal) % NODES_OF_ALL
        port = LeasedPort(
            name="primary", port=_first_port(number) + ordinal, protocol=PortSpec(port=1).protocol
        )
        return InstanceRecord(
            id=InstanceId(f"{group}-{ordinal}"),
            group=GroupName(group),
            node=NodeId(f"node-{node:03}"),
            incarnation=ws.next_incarnation(),
            state=InstanceState.RUNNING,
            wanted=Wanted.RUN,
            readiness=Readiness.READY,
            ports=(port,),
            memory_mb=512,
            created_at=_NOW,
            started_at=_NOW,
        )


_SCHEDULES: Final = (
    ScheduleSpec(
        name="evening", cron="0 18 * * *", time_zone="Europe/Berlin", duration_seconds=14_400, warm=0
    ),
    ScheduleSpec(
        name="weekend", cron="0 10 * * SAT", time_zone="America/New_York", duration_seconds=36_000, warm=0
    ),
)


def _first_port(number: int) -> int:
    return 20_000 + _WIDTH * number


def _node(number: int) -> NodeRecord:
    return NodeRecord(
        id=NodeId(f"node-{number:03}"),
        state=NodeState.ONLINE,
        state_since=_NOW,
        reason="",
        enrolled_at=_NOW,
        serials=(),
        address=f"192.0.2.{number}",
        memory_mb=32_768 + 64 * number,
        cpus=16,
        labels={"zone": "abcd"[number % 4]},
        runtimes=("process",),
    )


def _group(number: int, *, follows: bool = False) -> GroupRecord:
    spec = GroupSpec(
        name=f"group-{number:04}",
        command=("serve", "--port", "%PORT%"),
        min=EACH,
        memory_mb=512,
        cpu=0.1,
        ports={"primary": PortSpec(range=(_first_port(number), _first_port(number) + _WIDTH - 1))},
        node_labels={"zone": "abcd"[number % 4]} if number % 3 == 0 else {},
        scaling=ScalingSpec(mode=ScalingMode.DYNAMIC) if follows else ScalingSpec(),
        schedules=_SCHEDULES if follows else (),
        max_players=100,
    )
    return GroupRecord(spec=spec, created_at=_NOW, updated_at=_NOW)


def _bare_loop(free: list[int]) -> float:
    """Look at every node for every start; the time in ms."""
    began = time.perf_counter()
    for _ in range(MISSING):
        best, most = -1, -1
        for node, memory in enumerate(free):
            if memory >= 512 and memory > most:
                best, most = node, memory
        free[best] -= 512
    return (time.perf_counter() - began) * 1000


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    state = State()
    limits = PassLimits(starts=MISSING)
    full = []
    for _ in range(PASSES):
        found, took = state.run_pass(state.names, limits)
        assert sum(each.placement is not None for each in found.decisions) == MISSING, found.unfinished
        full.append(took)
    single = [state.run_pass([state.short[turn % MISSING]], limits)[1] for turn in range(EVENTS)]
    resting = [state.run_pass([state.names[1]], limits)[1] for _ in range(EVENTS)]
    floor = percentile(
        [_bare_loop([16_384 + node for node in range(NODES_OF_ALL)]) for _ in range(PASSES)], 0.5
    )
    following = State(following=FOLLOWING)
    scaled = percentile([following.run_pass(following.names, limits)[1] for _ in range(PASSES)], 0.95)
    p95, one = percentile(full, 0.95), percentile(single, 0.95)
    return [
        result("P3 full pass p50", percentile(full, 0.5), "ms", floor=floor, target="reported", ok=None),
        result("P3 full pass p95", p95, "ms", floor=floor, target="<= 50 ms", ok=p95 <= 50),
        result(
            f"P3 full pass, {FOLLOWING} groups follow their players and schedules, p95",
            scaled,
            "ms",
            floor=floor,
            target="<= 50 ms",
            ok=scaled <= 50,
        ),
        result("P3 pass after one event, with a start, p95", one, "ms", target="<= 2 ms", ok=one <= 2),
        result(
            "P3 pass after one event, nothing to do, p50",
            percentile(resting, 0.5),
            "ms",
            target="reported",
            ok=None,
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(run(), indent=2, ensure_ascii=False))
