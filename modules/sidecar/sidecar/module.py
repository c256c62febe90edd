"""The module: looks after the processes beside each instance of its node."""

from __future__ import annotations

import asyncio
import collections

from corral.sdk import (
    Counter,
    DaemonModule,
    ExitInfo,
    HostError,
    InstanceHandle,
    ModuleContext,
    Refused,
    ScheduledTask,
    SideProcess,
)
from sidecar.deciding import Patience, decide
from sidecar.rules import Rule, Settings

AT_ONCE = 16
"""Instances that are looked after side by side."""


class Beside:
    """One instance, and what is remembered about the processes beside it."""

    def __init__(self, handle: InstanceHandle) -> None:
        self.handle = handle
        self.tending = asyncio.Lock()
        self.patience: dict[str, Patience] = collections.defaultdict(Patience)
        self.changed: set[str] = set()
        """Names whose rule is not the one their process was started by."""


class Sidecar(DaemonModule):
    """What runs beside an instance is kept by the node, not here: it outlives this process and the daemon. So
    every look begins with the question what there is."""

    ctx: ModuleContext
    settings: Settings
    instances: dict[str, Beside]
    looking: ScheduledTask
    started: Counter

    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.settings = ctx.settings(Settings)
        self.instances = {}  # what runs is told anew after each start
        self._few = asyncio.Semaphore(AT_ONCE)
        self.started = ctx.metrics.counter("sidecar_starts", "Processes started beside instances")
        await self._look_every(self.settings.check_seconds)

    async def on_reload(self, ctx: ModuleContext) -> None:
        before, self.settings = self.settings, ctx.settings(Settings)
        for beside in self.instances.values():
            old, new = before.rules_for(beside.handle), self.settings.rules_for(beside.handle)
            beside.changed |= {name for name in old.keys() & new.keys() if _differ(old[name], new[name])}
        await self.looking.cancel()
        await self._look_every(self.settings.check_seconds)

    async def _look_every(self, seconds: float) -> None:
        self.looking = await self.ctx.scheduler.every(
            seconds, self.look, initial_delay=0.1, name="look", deadline=300
        )

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        beside = self.instances[handle.instance_id] = Beside(handle)
        await self.tend(beside)

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        """Its processes ended with it."""
        known = self.instances.get(handle.instance_id)
        if known is not None and known.handle.pid == handle.pid:  # and not the next run of it
            del self.instances[handle.instance_id]

    async def look(self) -> None:
        await asyncio.gather(*(self.tend(beside) for beside in list(self.instances.values())))

    async def tend(self, beside: Beside) -> None:
        """Make it as the rules say; what does not work is tried again at a later look."""
        async with self._few, beside.tending:
            try:
                await self._tend(beside, self.settings.rules_for(beside.handle))
            except HostError as error:  # it is ending, or the node has no room
                self.ctx.logger.debug("%s: %s", beside.handle.instance_id, error)

    async def _tend(self, beside: Beside, rules: dict[str, Rule]) -> None:
        id, changed = beside.handle.instance_id, set(beside.changed)
        there = await self.ctx.processes.list(id)
        decision = decide(rules, there, changed)
        for name in decision.stop:
            await self.ctx.processes.stop(id, name)
        for name in {*decision.stop, *changed}:
            beside.patience.pop(name, None)  # another command has not failed yet
        missing = {rule.name for rule in decision.missing}
        for process in there:
            if process.name in rules and process.name not in missing and process.running:
                beside.patience[process.name].seen_running()
        ended = {process.name: process for process in there if not process.running}
        for rule in decision.missing:
            await self._start(beside, rule, ended.get(rule.name))
        beside.changed -= changed

    async def _start(self, beside: Beside, rule: Rule, before: SideProcess | None) -> None:
        id = beside.handle.instance_id
        if not beside.patience[rule.name].may_start():
            return
        try:
            await self.ctx.processes.spawn(id, rule.name, rule.command, env=rule.env)
        except Refused as error:
            if error.code in ("NOT_RUNNING", "NOT_FOUND"):
                return  # the instance has ended, and we are about to hear of it
            self.ctx.logger.warning("%s beside %s cannot be started: %s", rule.name, id, error)
            return
        self.started.increase(rule=rule.name, group=beside.handle.group)
        if before is not None:
            self.ctx.logger.warning("%s beside %s was started again: %s", rule.name, id, _exit_text(before))


def _differ(old: Rule, new: Rule) -> bool:
    return (old.command, old.env) != (new.command, new.env)


def _exit_text(process: SideProcess) -> str:
    how = process.signal or f"exit code {process.exit_code}"
    last = process.output.strip().splitlines()[-1:]
    return f"it ended with {how}, saying: {last[0][:200]}" if last else f"it ended with {how}"
