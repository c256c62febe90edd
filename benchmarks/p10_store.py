"""P10: durable state transitions, next to the raw database on the same disk in the same run.

A transition is what the controller does all day: one document under compare-and-set, and the
event that describes it. 64 callers commit them one by one. Floors are bare group commits: the same
64 callers, each waiting for its own rows to be durable, behind one thread (SQLite) or one connection
(PostgreSQL), with no comparison, no fence and no memory. SQLite is held to half of a floor that stores
plain documents, PostgreSQL to 0.7 of one that stores the same rows as ours; the others decide nothing
and tell where the distance comes from.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import pathlib
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import structlog
import uvloop

from benchmarks.sizes import sized
from benchmarks.store_floors import (
    BODY,
    COLLECTION,
    ENTRY,
    JOURNAL,
    WRITERS,
    Floor,
    PostgresFloor,
    Rows,
    SqliteFloor,
    by_callers,
    lone,
)
from benchmarks.trees import fresh_directory, shared_root
from corral.domain.events import Draft, EventType
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import ABSENT, Append, Commit, Put, Transaction
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.postgres_server import PostgresServer

ROUNDS = sized(3, 1)
TARGET_LONE_MS = 1.0

Held = tuple[Rows, Rows, float | None]
"""What ours stores, what the floor stores, and the share of the floor that is claimed."""

SQLITE: Final[list[Held]] = [
    (Rows.EVENT, Rows.DOCUMENT, 0.5),
    (Rows.EVENT, Rows.EVENT, None),
    (Rows.ENTRY, Rows.ENTRY, None),
]
POSTGRES: Final[list[Held]] = [
    (Rows.EVENT, Rows.EVENT, 0.7),
    (Rows.ENTRY, Rows.ENTRY, 0.7),
    (Rows.EVENT, Rows.DOCUMENT, None),
]

_OURS: Final = {Rows.EVENT: "durable transitions", Rows.ENTRY: "the same with a journal entry each"}
_FLOOR: Final = {
    Rows.DOCUMENT: "a group commit of plain documents",
    Rows.EVENT: "a group commit of the same rows",
    Rows.ENTRY: "a group commit of the same rows",
}


class Bench:
    """A writer over one store, and memory that only follows its commits."""

    def __init__(self, writer: Writer, revisions: dict[str, int]) -> None:
        self._writer = writer
        self._revisions = revisions

    async def transition(self, name: str, *, rows: Rows = Rows.EVENT) -> None:
        await self._writer.commit(
            Transaction(
                writes=(
                    Put(
                        collection=COLLECTION,
                        id=name,
                        body=BODY,
                        expect=self._revisions.get(name, ABSENT),
                    ),
                ),
                events=(Draft(type=EventType.NODE_ONLINE, subject=name, data={"phase": "RUNNING"}),),
                entries=(Append(journal=JOURNAL, body=ENTRY),) if rows is Rows.ENTRY else (),
            )
        )

    async def together(self, rows: Rows) -> float:
        return await by_callers(functools.partial(self.transition, rows=rows))

    async def alone(self) -> float:
        return await lone(self.transition)


@contextlib.asynccontextmanager
async def bench(url: str, data: pathlib.Path) -> AsyncIterator[Bench]:
    store = await open_store(url, data=data)
    clock = SystemClock()
    term = await Leadership(store.leases, clock=clock, holder="bench", uncontested=True).acquire()
    revisions: dict[str, int] = {}

    def follow(commit: Commit) -> None:
        for change in commit.changes:
            revisions[change.id] = change.revision

    def fail(error: BaseException) -> None:
        sys.exit(f"the benchmark lost its store: {error}")

    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=clock,
        entropy=SystemEntropy(),
        on_commit=follow,
        on_fenced=fail,
        on_fatal=fail,
    )
    async with writer:
        yield Bench(writer, revisions)
    await store.close()


async def compare(
    name: str, ours: Bench, floor: Floor, *, held: list[Held], lone_target: float | None
) -> list[dict[str, Any]]:
    """Rounds of ours and of each floor in turn, so that a noisy neighbour hits all of them."""
    found = []
    for stored, beneath, share in held:
        values, floors = await _rounds(
            functools.partial(ours.together, stored), functools.partial(floor.grouped, beneath)
        )
        found.append(
            _entry(
                f"P10 {name}: {_OURS[stored]}, {WRITERS} callers",
                (values, floors),
                unit="1/s",
                target=f"{'none; floor:' if share is None else f'≥ {share} of'} {_FLOOR[beneath]}",
                ok=None if share is None else _ratio(values, floors) >= share,
            )
        )
    values, bare = await _rounds(
        functools.partial(ours.together, Rows.EVENT), functools.partial(floor.together, Rows.EVENT)
    )
    found.append(
        _entry(
            f"P10 {name}: durable transitions, {WRITERS} callers",
            (values, bare),
            unit="1/s",
            target="none; floor: the same rows, 64 a commit, no callers",
            ok=None,
        )
    )
    times, lone_floor = await _rounds(ours.alone, floor.alone)
    found.append(
        _entry(
            f"P10 {name}: a lone durable transition, p50",
            (times, lone_floor),
            unit="ms",
            target="none" if lone_target is None else f"≤ {lone_target} ms",
            ok=None if lone_target is None else statistics.median(times) <= lone_target,
        )
    )
    return found


def _entry(
    name: str, measured: tuple[list[float], list[float]], *, unit: str, target: str, ok: bool | None
) -> dict[str, Any]:
    """`ok` is None where there is nothing to be held to: never a pass."""
    values, floors = measured
    digits = 3 if unit == "ms" else None
    return {
        "name": name,
        "value": round(statistics.median(values), digits),
        "unit": unit,
        "floor": round(statistics.median(floors), digits),
        "ratio": round(_ratio(values, floors), 2),
        "target": target,
        "ok": ok,
    }


def _ratio(values: list[float], floors: list[float]) -> float:
    return statistics.median(value / base for value, base in zip(values, floors, strict=True))


async def _rounds(*measures: Callable[[], Awaitable[float]]) -> list[list[float]]:
    for measure in measures:
        await measure()  # the first round fills caches and creates the documents
    rounds = [[await measure() for measure in measures] for _ in range(ROUNDS)]
    return [list(column) for column in zip(*rounds, strict=True)]


async def _run(data: pathlib.Path, server: PostgresServer) -> list[dict[str, Any]]:
    found = []
    async with bench("sqlite", data) as ours:
        floor: Floor = SqliteFloor(data)
        found += await compare("SQLite", ours, floor, held=SQLITE, lone_target=TARGET_LONE_MS)
        await floor.close()
    async with bench(server.url(), data) as ours:
        floor = await PostgresFloor.open(server.url())
        found += await compare("PostgreSQL", ours, floor, held=POSTGRES, lone_target=None)
        await floor.close()
    return found


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with PostgresServer(parent=shared_root(), durable=True, keep=True) as server:
        return uvloop.run(_run(fresh_directory(), server))
