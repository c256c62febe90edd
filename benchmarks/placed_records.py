"""A store with many instances on one node, without a process of any of them: records as starts would have
left them, placed through the store itself."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import pathlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

from corral.controller.instances.starts import reserve
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import GROUPS, NODES
from corral.controller.state.ledger import Ledger
from corral.domain.groups.group import GroupSpec, PortProtocol, PortSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, LeasedPort, Readiness
from corral.domain.ids import Epoch, GroupName, Incarnation, InstanceId, NodeId, first_incarnation
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import NodeState
from corral.domain.records import NodeRecord
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import Commit
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy

GROUPS_OF_ALL: Final = 100
LARGE: Final = "g0"
"""The group with at least `PAGE` instances, however few there are in all: a page of it is always as long."""
PAGE: Final = 50
NODE: Final = NodeId("bench")
_A_COMMIT: Final = 1000
_PORTS: Final = (20_000, 49_999)
_NOW: Final = dt.datetime.now(dt.UTC)


class Numbers:
    """Numbers of starts, from one on."""

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def take(self) -> Incarnation:
        return first_incarnation(next(self._next))


class Controller:
    """What a leading controller changes its state with: memory, a ledger, workspaces."""

    def __init__(self, ledger: Ledger, epoch: Epoch) -> None:
        self.ledger = ledger
        self.state = ledger.state
        self._epoch = epoch
        self._numbers = Numbers()

    def workspace(self) -> Workspace:
        return Workspace(
            self.state,
            cause="bench",
            now=_NOW,
            epoch=self._epoch,
            entropy=SystemEntropy(),
            numbers=self._numbers,
        )

    async def place(self, instances: int) -> None:
        """One node, 100 groups, and so many running instances with a port each."""
        await self.ledger.commit(
            NODES.put(NODE, _node(), expect=None),
            *(GROUPS.put(name, _group(name), expect=None) for name in _groups()),
        )
        names = _instances(instances)
        for first in range(0, instances, _A_COMMIT):
            ws = self.workspace()
            for number in range(first, min(first + _A_COMMIT, instances)):
                record = _instance(names[number], ws.next_incarnation(), number)
                ws.put_instance(record)
                reserve(ws, record, cpu=0.1)
            await self.ledger.commit(*ws.steps())


@contextlib.asynccontextmanager
async def opened(
    data: pathlib.Path, *, on_commit: Callable[[ClusterState, Commit], None] = ClusterState.apply
) -> AsyncIterator[Controller]:
    """The store in this directory, led by this process; `on_commit` applies a commit to memory."""
    store = await open_store("sqlite", data=data)
    clock, state = SystemClock(), ClusterState()
    term = await Leadership(store.leases, clock=clock, holder="bench", uncontested=True).acquire()
    state.load(await store.reads.snapshot(state.collections))

    def fail(error: BaseException) -> None:
        sys.exit(f"the benchmark lost its store: {error}")

    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=clock,
        entropy=SystemEntropy(),
        on_commit=lambda commit: on_commit(state, commit),
        on_fenced=fail,
        on_fatal=fail,
    )
    async with writer:
        yield Controller(Ledger(writer, state), term.epoch)
    await store.close()


def _groups() -> list[str]:
    return [f"g{number}" for number in range(GROUPS_OF_ALL)]


def _instances(count: int) -> list[tuple[str, str]]:
    """Group and id of each: the groups are equally large, but one has a page of instances in any case."""
    taken = dict.fromkeys(_groups(), 0)
    taken[LARGE] = PAGE
    rest = itertools.cycle(taken)
    for _ in range(count - PAGE):
        smallest = next(rest)
        while taken[smallest] > count // GROUPS_OF_ALL:
            smallest = next(rest)
        taken[smallest] += 1
    return [(group, f"{group}-{number}") for group, most in taken.items() for number in range(1, most + 1)]


def _node() -> NodeRecord:
    return NodeRecord(
        id=NODE,
        state=NodeState.ONLINE,
        state_since=_NOW,
        reason="",
        enrolled_at=_NOW,
        serials=(),
        address="192.0.2.1",
        memory_mb=1_000_000,
        cpus=4096,
        runtimes=("process",),
    )


def _group(name: str) -> GroupRecord:
    ports = {"game": PortSpec(range=_PORTS, protocol=PortProtocol.TCP)}
    spec = GroupSpec(name=name, command=("/bin/true",), memory_mb=16, cpu=0.1, ports=ports)
    return GroupRecord(spec=spec, created_at=_NOW, updated_at=_NOW)


def _instance(name: tuple[str, str], incarnation: Incarnation, number: int) -> InstanceRecord:
    group, id = name
    return InstanceRecord(
        id=InstanceId(id),
        group=GroupName(group),
        node=NODE,
        incarnation=incarnation,
        serial=number + 1,
        state=InstanceState.RUNNING,
        wanted=Wanted.RUN,
        readiness=Readiness.READY,
        ports=(LeasedPort(name="game", port=_PORTS[0] + number, protocol=PortProtocol.TCP),),
        memory_mb=16,
        plan_hash="0" * 64,
        decision=f"dec-{number:012}",
        reason="placed by a benchmark",
        pid=1000 + number,
        created_at=_NOW,
        started_at=_NOW,
    )
