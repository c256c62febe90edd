"""P21: module documents at 100,000 of them, beside what the database does with JSON by itself.

Ours plans, filters and sorts in Python over plain rows, and keeps index entries as rows. The floors are
SQLite's JSON functions and PostgreSQL's `jsonb` (`document_rivals`), behind the same SDK and the same writer.
Each runs in a process of its own. While a kind of work is under way, others go on: a timer that should fire
each millisecond (the loop's lag), and a commit of the control plane every 20 ms (what a neighbour waits).

`CORRAL_BENCH_DOCUMENTS` sets another number of documents; `CORRAL_BENCH_DIR` is where the databases lie.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import pathlib
import resource
from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg
import msgspec
import structlog
import uvloop

from benchmarks.document_contest import Contest, Link, Work
from benchmarks.document_rivals import PostgresRival, SqliteRival
from benchmarks.figures import result
from benchmarks.trees import fresh_directory, shared_root
from corral.controller.modules.data.module_data import ModuleData
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.sdk.storage import DocumentStorage
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.sqlite.engine import DATABASE
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.postgres_server import PostgresServer

TARGETS: Final = {
    "read one": 1.0,
    "find one by a unique field": 2.0,
    "the best ten of a game": 4.0,
    "update one": 10.0,
    "count without an index": 1500.0,
}
"""Milliseconds at 100,000 documents on a quiet machine."""
_SERVER: Final = {"autovacuum": "on", "autovacuum_naptime": "5s"}
"""As a server that is kept: without statistics no plan is what it would be."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One contestant's: work by name, memory of the process and bytes of the database."""

    work: dict[str, Work]
    answers: dict[str, Any]
    memory: float
    disk: float


@contextlib.asynccontextmanager
async def _led(url: str, data: pathlib.Path) -> AsyncIterator[tuple[ModuleData, Ledger]]:
    store = await open_store(url, data=data)
    clock = SystemClock()
    term = await Leadership(store.leases, clock=clock, holder="bench", uncontested=True).acquire()
    state = ClusterState()
    state.load(await store.reads.snapshot(state.collections))

    def fail(error: BaseException) -> None:
        raise SystemExit(f"the benchmark lost its store: {error}")

    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=clock,
        entropy=SystemEntropy(),
        on_commit=state.apply,
        on_fenced=fail,
        on_fatal=fail,
    )
    async with writer:
        ledger = Ledger(writer, state)
        yield ModuleData(reads=store.reads, ledger=ledger, clock=clock), ledger
    await store.close()


async def _contest(url: str, data: pathlib.Path, *, rival: bool) -> Figures:
    async with _led(url, data) as (documents, ledger):
        operations = documents.operations()
        own: Any = None
        if rival:
            own = (
                SqliteRival(documents, data / DATABASE) if url == "sqlite" else PostgresRival(documents, url)
            )
            await own.open()
            operations = own.operations(documents)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        contest = Contest(DocumentStorage(Link(operations)), ledger)
        await contest.run()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if own is not None:
            await own.close()
    return Figures(
        work=contest.work, answers=contest.answers, memory=memory / 1024, disk=await _size(url, data)
    )


async def _size(url: str, data: pathlib.Path) -> float:
    if url == "sqlite":
        return sum(path.stat().st_size for path in data.glob(f"{DATABASE}*")) / 2**20
    connection = await asyncpg.connect(url)
    size: int = await connection.fetchval("select pg_database_size(current_database())")
    await connection.close()
    return size / 2**20


def _alone(url: str, data: str, rival: bool) -> Figures:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    return uvloop.run(_contest(url, pathlib.Path(data), rival=rival))


def _in_a_process(url: str, *, rival: bool) -> Figures:
    spawning = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning) as pool:
        return pool.submit(_alone, url, str(fresh_directory()), rival).result()


def compared(name: str, ours: Figures, theirs: Figures) -> list[dict[str, Any]]:
    found = []
    for kind, work in ours.work.items():
        if ours.answers[kind] != theirs.answers[kind]:
            raise AssertionError(f"{name}, {kind}: {ours.answers[kind]!r} is not {theirs.answers[kind]!r}")
        floor, most = theirs.work[kind], TARGETS.get(kind)
        found.append(_figure(f"P21 {name}: {kind}", work.median, floor.median, "ms", most))
        found.append(_figure(f"P21 {name}: {kind}, processor", work.processor, floor.processor, "ms"))
    lag, their_lag = (max(work.lag for work in each.work.values()) for each in (ours, theirs))
    wait, their_wait = (max(work.neighbour for work in each.work.values()) for each in (ours, theirs))
    return [
        *found,
        _figure(f"P21 {name}: lag of the loop, p99, at the worst kind", lag, their_lag, "ms"),
        _figure(f"P21 {name}: a neighbour's commit, the longest", wait, their_wait, "ms"),
        _figure(f"P21 {name}: memory more", ours.memory, theirs.memory, "MB"),
        _figure(f"P21 {name}: on disk", ours.disk, theirs.disk, "MB"),
    ]


def _figure(name: str, value: float, floor: float, unit: str, most: float | None = None) -> dict[str, Any]:
    """`ok` is None where there is nothing to be held to: never a pass."""
    target = "none, for information" if most is None else f"≤ {most} {unit}"
    return result(name, value, unit, floor=floor, target=target, ok=None if most is None else value <= most)


def run() -> list[dict[str, Any]]:
    found = compared("SQLite", *(_in_a_process("sqlite", rival=rival) for rival in (False, True)))
    figures = []
    for rival in (False, True):
        with PostgresServer(parent=shared_root(), durable=True, keep=True, settings=_SERVER) as server:
            figures.append(_in_a_process(server.url(), rival=rival))
    return found + compared("PostgreSQL", *figures)
