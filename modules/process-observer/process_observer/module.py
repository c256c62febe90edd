"""The module: looks at every instance of the node now and then, and tells what it uses."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from corral.sdk import (
    CapabilityBinding,
    DaemonModule,
    ExitInfo,
    InstanceHandle,
    ModuleContext,
    ScheduledTask,
)
from process_observer.contract import NodeProcesses, ProcessUsage
from process_observer.measures import Measures
from process_observer.proc import Process, Snapshot, Usage, read_process, usage_of


class Watched(msgspec.Struct, kw_only=True):
    """An instance that runs, and the last look at it."""

    handle: InstanceHandle
    root: Process
    looked: float = 0.0
    """When, by the monotonic clock."""
    usage: Usage | None = None
    measured: ProcessUsage | None = None


class ProcessObserver(DaemonModule):
    """Provides `corral.node.processes`, and gauges and counters by instance and group."""

    measures: Measures
    looking: ScheduledTask
    watched: dict[str, Watched]

    async def on_start(self, ctx: ModuleContext) -> None:
        self.watched = {}  # what runs is told anew after each start
        self.measures = Measures(ctx.metrics)
        self.looking = await ctx.scheduler.every(ctx.config["intervalSeconds"], self.look, name="look")

    async def on_reload(self, ctx: ModuleContext) -> None:
        await self.looking.cancel()
        self.looking = await ctx.scheduler.every(ctx.config["intervalSeconds"], self.look, name="look")

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        """Also told of every instance that ran before this module did (`handle.adopted`)."""
        root = read_process(handle.pid)
        if root is not None:  # else it has ended already
            self.forget(handle.instance_id)
            self.watched[handle.instance_id] = Watched(handle=handle, root=root)

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        known = self.watched.get(handle.instance_id)
        if known is not None and known.handle.pid == handle.pid:  # and not the next run of it
            self.forget(handle.instance_id)

    def forget(self, instance_id: str) -> None:
        known = self.watched.pop(instance_id, None)
        if known is not None:
            self.measures.forget(known.handle)

    async def look(self) -> None:
        """One walk through /proc for all instances."""
        snapshot = Snapshot.read()
        for known in self.watched.values():
            if tree := snapshot.tree_of(known.root):
                self.note(known, usage_of(tree), time.monotonic())

    def note(self, known: Watched, usage: Usage, now: float) -> None:
        before = known.usage
        known.measured = ProcessUsage(
            instance_id=known.handle.instance_id,
            group=known.handle.group,
            pid=known.handle.pid,
            at=dt.datetime.now(dt.UTC),
            cpu_percent=percent_between(before, usage, now - known.looked) if before else None,
            **msgspec.structs.asdict(usage),
        )
        self.measures.record(known.handle, known.measured, before)
        known.usage, known.looked = usage, now

    def capability_handles(self) -> Sequence[CapabilityBinding[Any]]:
        return [CapabilityBinding("corral.node.processes", NodeProcesses, lambda: self)]

    async def observe(self, *, instance_id: str) -> ProcessUsage | None:
        known = self.watched.get(instance_id)
        if known is not None and known.measured is None:  # it has just been started
            await self.look()
        return known.measured if known else None

    async def all(self) -> list[ProcessUsage]:
        found = [known.measured for _, known in sorted(self.watched.items())]
        return [measured for measured in found if measured is not None]


def percent_between(before: Usage, now: Usage, seconds: float) -> float:
    """Of one core. What an orphan had used is gone with it, so the sum may fall: that is no negative load."""
    used = max(0.0, now.cpu_seconds - before.cpu_seconds)
    return round(100 * used / seconds, 1) if seconds > 0 else 0.0
