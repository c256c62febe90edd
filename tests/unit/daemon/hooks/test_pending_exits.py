"""Who is owed which ends: bounded, and on the disk what is in memory."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import threading
import time
from collections.abc import Collection, Coroutine
from typing import Any

import pytest

from corral.daemon.hooks.stop_notifications import MOST_PENDING, PendingStopNotifications
from corral.daemon.modules.module_host import served_since, should_run
from corral.daemon.runs.run_files import RunDirectories
from corral.daemon.runs.run_hooks import find_pending
from corral.domain.modules.manifest import Backends, HostBackend, Manifest, ModuleHost
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import HISTORY_LENGTH, PackageRecord, PhaseStep
from corral.sdk.instances import ExitInfo, InstanceHandle

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
P = ModulePhase
_COUNTING = threading.Lock()


class EndInMemory:
    """The second adapter of `StoppedRunFile`: what was written last."""

    def __init__(self, id: str) -> None:
        self.instance_id = id
        self.owed: tuple[str, ...] | None = None

    def read(self) -> tuple[InstanceHandle, ExitInfo] | None:
        return None

    def write_pending(self, modules: Collection[str]) -> None:
        self.owed = tuple(modules)


class Tasks:
    def __init__(self) -> None:
        self._all: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._all.append(asyncio.create_task(work, name=name))

    async def done(self) -> None:
        await asyncio.gather(*self._all)


async def test_of_too_many_ends_the_oldest_is_given_up_and_counts_as_told():
    tasks = Tasks()
    book = PendingStopNotifications(tasks.spawn, most=2)
    ends = [EndInMemory(f"one-{n}") for n in range(3)]
    for end in ends:
        book.add(f"{end.instance_id}.1", end, {"b", "a"})
    await tasks.done()
    assert len(book) == 2
    assert [end.owed for end in ends] == [(), ("a", "b"), ("a", "b")]


async def test_ten_thousand_ended_runs_take_no_more_room_than_the_bound():
    tasks = Tasks()
    book = PendingStopNotifications(tasks.spawn)
    for n in range(MOST_PENDING + 1000):
        book.add(f"one-{n}.1", EndInMemory(f"one-{n}"), ("a",), kept=True)
    await tasks.done()
    assert len(book) == MOST_PENDING


class SlowEnd(EndInMemory):
    """Counts how many are written at once."""

    writing = 0
    most = 0

    def write_pending(self, modules: Collection[str]) -> None:
        with _COUNTING:
            SlowEnd.writing += 1
            SlowEnd.most = max(SlowEnd.most, SlowEnd.writing)
        time.sleep(0.002)  # what a disk takes
        with _COUNTING:
            SlowEnd.writing -= 1
        super().write_pending(modules)


async def test_however_many_are_written_down_threads_are_left_for_others():
    tasks = Tasks()
    book = PendingStopNotifications(tasks.spawn)
    ends = [SlowEnd(f"one-{n}") for n in range(100)]
    for end in ends:
        book.add(f"{end.instance_id}.1", end, {"a", "b"}, kept=True)
    book.dismiss("a")
    await tasks.done()
    assert {end.owed for end in ends} == {("b",)}
    assert SlowEnd.most <= 2


async def test_whoever_is_dismissed_is_struck_off_everywhere_and_the_others_are_not():
    tasks = Tasks()
    book = PendingStopNotifications(tasks.spawn)
    both, alone, other = EndInMemory("both-1"), EndInMemory("alone-1"), EndInMemory("other-1")
    book.add("both-1.1", both, {"a", "b"})
    book.add("alone-1.1", alone, {"a"})
    book.add("other-1.1", other, {"b"}, kept=True)
    book.dismiss("a")
    await tasks.done()
    assert (both.owed, alone.owed, other.owed) == (("b",), (), None)
    assert len(book) == 2


async def test_an_end_that_nobody_is_owed_is_written_down_and_forgotten():
    tasks = Tasks()
    book = PendingStopNotifications(tasks.spawn)
    end = EndInMemory("one-1")
    book.add("one-1.1", end, ())
    await tasks.done()
    assert (end.owed, len(book)) == ((), 0)


# --- on the disk ----------------------------------------------------------------------------------
def test_what_is_owed_is_found_again_in_the_order_of_runs_and_the_latest_of_too_many(tmp_path):
    runs = RunDirectories(tmp_path)
    for number, (id, incarnation) in enumerate(
        (("b-1", 2), ("b-1", 1), ("a-1", 1), ("told-1", 1), ("new-1", 1))
    ):
        files = runs.files(id, incarnation)
        files.directory.mkdir(parents=True)
        if id != "new-1":
            files.write_pending_modules(() if id == "told-1" else ("m", "n"))
            os.utime(files.directory / "told", (number, number))
    found = find_pending(runs.all())
    assert [(pending.name, pending.modules) for pending in found] == [
        ("a-1.1", ("m", "n")),
        ("b-1.1", ("m", "n")),
        ("b-1.2", ("m", "n")),
    ]
    assert [pending.name for pending in find_pending(runs.all(), most=2)] == ["a-1.1", "b-1.1"]
    assert runs.files("new-1", 1).pending_modules() is None
    assert runs.files("told-1", 1).pending_modules() == ()


def test_a_mark_that_cannot_be_read_tells_nothing_twice_and_one_that_is_swept_is_not_made_again(tmp_path):
    files = RunDirectories(tmp_path).files("a-1", 1)
    files.write_pending_modules(("m",))
    assert not files.directory.exists()
    files.directory.mkdir(parents=True)
    (files.directory / "told").write_text("{")
    assert files.modules_notified()
    files.write_pending_modules(("m",))
    assert files.pending_modules() == ("m",)
    files.write_pending_modules()
    assert files.modules_notified()


# --- who should hear ------------------------------------------------------------------------------
def record(
    phase: ModulePhase, *history: tuple[ModulePhase, ModulePhase, int], **fields: Any
) -> PackageRecord:
    """A module with these steps, each so many minutes after noon."""
    steps = tuple(
        PhaseStep(at=NOON + dt.timedelta(minutes=at), from_phase=left, to_phase=to, reason="")
        for left, to, at in history
    )
    backends = Backends(daemon=HostBackend(entrypoint="a:B"))
    manifest = Manifest(
        manifest_version=1, id="m", version="1.0.0", hosts=(ModuleHost.DAEMON,), backend=backends
    )
    return PackageRecord(
        id="m",
        version="1.0.0",
        sha256="0",
        size=1,
        manifest=manifest,
        phase=phase,
        history=steps,
        installed_at=NOON,
        updated_at=NOON,
        **fields,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (record(P.ACTIVE), True),
        (record(P.FAILED, (P.ACTIVE, P.FAILED, 11)), True),
        (record(P.FAILED, (P.ACTIVE, P.FAILED, 10)), True),
        (record(P.FAILED, (P.ACTIVE, P.FAILED, 9), (P.WAITING, P.FAILED, 12)), False),
        (record(P.WAITING, (P.ACTIVE, P.STOPPING, 3), (P.ACTIVE, P.STOPPING, 12)), True),
        (record(P.FAILED, (P.WAITING, P.FAILED, 12)), False),
        (record(P.FAILED, *[(P.WAITING, P.FAILED, 12)] * HISTORY_LENGTH), True),
        (record(P.FAILED, *[(P.WAITING, P.FAILED, 9)] * HISTORY_LENGTH), False),
    ],
)
def test_whether_a_module_was_there_since_ten_past_noon(found, expected):
    assert served_since(found, NOON + dt.timedelta(minutes=10)) is expected


def test_what_an_operator_holds_back_or_took_away_is_not_wanted():
    assert should_run(record(P.FAILED))
    for intent in (ModuleIntent.INACTIVE, ModuleIntent.PAUSED):
        assert not should_run(record(P.ACTIVE, intent=intent))
    assert not should_run(None)
