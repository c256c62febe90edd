"""P18: what an operation costs with 10,000 instances, next to the same with 100.

CPU of the controller, not time: what a neighbour does shows in neither. Records of instances are placed in two
SQLite stores, each with one node and 100 groups. A controller process on each answers requests in turns; starts
and ends are committed in this process, by the code of the controller, to a third and a fourth store. Whatever
differs but the number of instances would spoil the ratio: a page of a group is 50 items in both, and the page
of 500, of which the smaller store has only 100, is counted by item.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
import uvloop

from benchmarks.figures import result
from benchmarks.fleet import Api
from benchmarks.placed_records import LARGE, NODE, PAGE, Controller, opened
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.controller.instances.plan_view import next_requests
from corral.controller.instances.starts import release, start_run
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import InstanceRecord
from corral.store.port import Commit
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster

FEW, MANY = 100, sized(10_000, 200)
MOST = 1.5
ROUNDS = sized(5, 1)
REQUESTS = sized(20, 2)
CHANGES = sized(8, 2)
REPORTS = sized(100, 5)
"""Operations a round."""
GROUP = "g7"
_QUIET: Final = 0.02
_SETTLED_SECONDS: Final = 60.0
_STILL: Final = {
    "CORRAL_RECONCILE_OBSERVE_SECONDS": "3600",
    "CORRAL_RECONCILE_FLOOR_SECONDS": "3600",
    "CORRAL_RECONCILE_OFFLINE_AFTER_SECONDS": "3600",
}
"""Nothing happens by itself."""

PATHS: Final = {
    "GET groups": ("/api/v1/groups?limit=100", False),
    "GET instances?limit=100": ("/api/v1/instances?limit=100", False),
    "GET instances?view=summary&limit=100": ("/api/v1/instances?view=summary&limit=100", False),
    "GET instances?limit=500, an item": ("/api/v1/instances?limit=500", True),
    f"GET instances?group=g&limit={PAGE}": (f"/api/v1/instances?group={LARGE}&limit={PAGE}", False),
    "GET nodes": ("/api/v1/nodes", False),
    "GET one instance": (f"/api/v1/instances/{LARGE}-{PAGE}", False),
}

Costs = dict[str, float]
"""CPU of each kind of operation, in ms."""


class Answering:
    """A controller process over a store with so many instances."""

    def __init__(self, pid: int, api: Api, *, host: str, token: str) -> None:
        self._pid = pid
        self._api = api
        self.host = host
        self.token = token

    def processor(self) -> float:
        """Seconds of CPU that the process has used."""
        return _processor(self._pid)

    async def costs(self) -> Costs:
        found = {}
        for name, (path, by_item) in PATHS.items():
            page = await self._api("GET", path)
            before = _processor(self._pid)
            for _ in range(REQUESTS):
                await self._api("GET", path)
            share = len(page["items"]) if by_item else 1
            found[name] = (_processor(self._pid) - before) * 1000 / REQUESTS / share
        return found

    async def settled(self) -> None:
        """Until what a start leaves to do is done."""
        async with asyncio.timeout(_SETTLED_SECONDS):
            while True:
                before = _processor(self._pid)
                await asyncio.sleep(0.5)
                if _processor(self._pid) - before < _QUIET * 0.5:
                    return


@contextlib.asynccontextmanager
async def answering(instances: int) -> AsyncIterator[Answering]:
    directory = fresh_directory()
    data = directory / "controller"
    http, grpc, bootstrap = free_addresses(3)
    arguments = ("--data", str(data), "--http", http, "--grpc", grpc, "--bootstrap", bootstrap)
    async with ProcessCluster(directory) as processes:
        first = processes.start("controller", *arguments, environment=_STILL)
        await first.ready()
        await first.terminate()
        async with opened(data) as controller:
            await controller.place(instances)
        process = processes.start("controller", *arguments, environment=_STILL)
        await process.ready()
        token = (data / "admin.token").read_text().strip()
        api = Api(http, token)
        found = Answering(process.pid, api, host=http, token=token)
        await found.settled()
        try:
            yield found
        finally:
            api.close()


class Changing:
    """Starts, ends and reports of instances, committed one after another."""

    def __init__(self, controller: Controller, folds: list[float]) -> None:
        self._controller = controller
        self._folds = folds

    async def costs(self) -> Costs:
        starts, ends = [], []
        for _ in range(CHANGES):
            began = time.process_time()
            record = await self._start()
            started = time.process_time()
            await self._end(record)
            starts.append(started - began)
            ends.append(time.process_time() - started)
        self._folds.clear()
        for _ in range(REPORTS):
            await self._report()
        kinds = {"a start's commit": starts, "an end's commit": ends, "an event's fold": self._folds}
        return {name: statistics.median(seconds) * 1000 for name, seconds in kinds.items()}

    async def _start(self) -> InstanceRecord:
        """Choose an id, plan, place and reserve, as for a request."""
        ws = self._controller.workspace()
        group = ws.require_group(GROUP)
        record = start_run(ws, group, next(next_requests(ws, group, reason="bench")))
        assert isinstance(record, InstanceRecord), record
        await self._controller.ledger.commit(*ws.steps())
        return record

    async def _end(self, record: InstanceRecord) -> None:
        ws = self._controller.workspace()
        release(ws, record)
        ws.delete_instance(record.id)
        ws.event(EventType.INSTANCE_STOPPED, record.id, node=NODE)
        await self._controller.ledger.commit(*ws.steps())

    async def _report(self) -> None:
        stored = self._controller.state.instances.require(f"{LARGE}-1")
        changed = msgspec.structs.replace(stored.record, console_end=stored.record.console_end + 1)
        await self._controller.ledger.commit(
            INSTANCES.put(changed.id, changed, expect=stored.revision),
            Draft(type=EventType.INSTANCE_RUNNING, subject=changed.id, data={"node": NODE}),
        )


@contextlib.asynccontextmanager
async def changing(instances: int) -> AsyncIterator[Changing]:
    folds: list[float] = []

    def apply(state: ClusterState, commit: Commit) -> None:
        began = time.thread_time()
        state.apply(commit)
        folds.append(time.thread_time() - began)

    async with opened(fresh_directory(), on_commit=apply) as controller:
        await controller.place(instances)
        yield Changing(controller, folds)


def _processor(pid: int) -> float:
    """Seconds of CPU that all threads of a process have used, finer than the ticks of `stat`."""
    used = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9


async def _rounds(few: Callable[[], Awaitable[Costs]], many: Callable[[], Awaitable[Costs]]) -> list[Any]:
    for measure in (few, many):
        await measure()  # fills caches
    rounds = [(await few(), await many()) for _ in range(ROUNDS)]
    return [_growth(name, [(low[name], high[name]) for low, high in rounds]) for name in rounds[0][0]]


def _growth(name: str, pairs: Sequence[tuple[float, float]]) -> Mapping[str, Any]:
    few = statistics.median(low for low, _ in pairs)
    many = statistics.median(high for _, high in pairs)
    found = result(
        f"P18 {name}, {MANY:,} instances",
        many,
        "ms CPU",
        floor=few,
        target=f"≤ {MOST} x with {FEW}",
        ok=None,
    )
    ratio = statistics.median(high / low for low, high in pairs)
    return {**found, "ratio": round(ratio, 3), "ok": ratio <= MOST}


async def _bench() -> list[dict[str, Any]]:
    async with answering(FEW) as few, answering(MANY) as many:
        found = await _rounds(few.costs, many.costs)
    async with changing(FEW) as little, changing(MANY) as much:
        found += await _rounds(little.costs, much.costs)
    return found


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    return uvloop.run(_bench())


if __name__ == "__main__":
    print(json.dumps(run(), indent=2, ensure_ascii=False))
