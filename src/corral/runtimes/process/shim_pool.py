"""The daemon's pool of spare shims: each waits in a control group of its own, with the fork that will be the workload.

A start that takes one saves the forks and the moves into control groups, for which the kernel may need 20 ms. The
pool refills itself, one spare at a time. An empty pool delays nothing: the keeper forks a shim as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, Final

import structlog

from corral.errors import CorralError
from corral.runtimes.cgroups.port import SpareGroups, drop_spare_group
from corral.runtimes.keeper.proc_facts import is_runnable, open_process
from corral.runtimes.keeper.spare_shims import SPARE
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.keeper_client import KeeperClient, KeeperDialogue
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks

_log = structlog.get_logger("corral.runtimes.process")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 30.0
_ANSWER_SECONDS: Final = 5.0
"""Longer than the keeper waits for a spare."""
_GONE_SECONDS: Final = 5.0


class SpareShim:
    """A shim without a run. It ends, with its fork, when `dialogue` is closed before it has got one."""

    __slots__ = ("child", "child_start", "dialogue", "pid", "slot", "start")

    def __init__(self, dialogue: KeeperDialogue, hello: dict[str, Any], slot: str) -> None:
        self.dialogue = dialogue
        self.pid: int = hello[SPARE]
        self.start: int = hello["start"]
        self.child: int = hello["child"]
        self.child_start: int = hello["child_start"]
        self.slot = slot

    def is_usable(self) -> bool:
        """Whether shim and fork can go on: they may have been stopped or killed a moment ago."""
        return is_runnable(self.pid, self.start) and is_runnable(self.child, self.child_start)


class ShimPool:
    """Up to `size` spares. Call `start` first; `close` ends all that have no run."""

    def __init__(self, client: KeeperClient, groups: SpareGroups | None, size: int) -> None:
        """There are no spares without `groups`."""
        self._client = client
        self._groups = groups
        self._size = size
        self._ready: list[SpareShim] = []
        self._wake = asyncio.Event()
        self._refill = Tasks()
        self._discards = Tasks()

    @property
    def spares(self) -> tuple[SpareShim, ...]:
        """Spare shims that wait for a run now."""
        return tuple(self._ready)

    def start(self) -> None:
        """Idempotent."""
        if self._groups is not None and self._size and not self._refill:
            self._wake.set()
            left = self._groups.unbound()  # before this pool makes its first group
            self._refill.spawn(_drop_groups(self._groups, left), name="runtime/drop/left-spares")
            self._refill.spawn(self._run(self._groups), name="runtime/spares")

    @contextlib.asynccontextmanager
    async def shim_for(
        self, plan: dict[str, Any], *, lock: int
    ) -> AsyncIterator[tuple[KeeperDialogue, dict[str, Any], SpareShim | None]]:
        """A shim for the run of this plan: the dialogue with it, its first answer, and the spare that it is, if it is
        one."""
        spare = self._take()
        try:
            dialogue, hello = await self._request(plan, spare, lock)
            async with dialogue:
                used = spare if spare is not None and hello.get("shim") == spare.pid else None
                if used is not None:
                    spare = None
                    await used.dialogue.close()
                yield dialogue, hello, used
        finally:
            self._wake.set()  # only now: the forks of the next spare would delay this start
            if spare is not None:
                await self._discard(spare)

    async def _request(
        self, plan: dict[str, Any], spare: SpareShim | None, lock: int
    ) -> tuple[KeeperDialogue, dict[str, Any]]:
        """The dialogue with the spare, or with a new shim where there is none, or it does not answer."""
        if spare is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return await self._client.ask({**plan, SPARE: spare.pid}, lock=lock)
            _log.warning("spare_shim.expired", pid=spare.pid, run=plan["run"])
            await _kill(spare.pid, spare.start)
        return await self._client.ask(plan, lock=lock)

    def _take(self) -> SpareShim | None:
        while self._ready:
            spare = self._ready.pop(0)
            self._unwatch(spare)
            if spare.is_usable():
                return spare
            self._discards.spawn(self._discard(spare), name=f"runtime/discard/{spare.slot}")
        return None

    async def _discard(self, spare: SpareShim) -> None:
        """End a spare that got no run, and remove its group. Killed: it may have been stopped."""
        await spare.dialogue.close()
        for pid, start in ((spare.pid, spare.start), (spare.child, spare.child_start)):
            await _kill(pid, start)
        if self._groups is not None:
            await drop_spare_group(self._groups, spare.slot)

    async def close(self) -> None:
        """Idempotent."""
        await self._refill.close()
        spares, self._ready = self._ready, []
        for spare in spares:
            self._unwatch(spare)
        await asyncio.gather(*(self._discard(spare) for spare in spares))
        await self._discards.wait()

    async def _run(self, groups: SpareGroups) -> None:
        """The task. Failures are retried after a growing pause."""
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while len(self._ready) < self._size:
                try:
                    spare = await self._made(groups)
                except (CorralError, OSError) as error:
                    _log.warning("spare_shim.failed", reason=str(error))
                except Exception:
                    _log.exception("spare_shim.failed")
                else:
                    backoff.reset()
                    self._ready.append(spare)
                    self._watch(spare)
                    continue
                await asyncio.sleep(backoff.delay())

    async def _made(self, groups: SpareGroups) -> SpareShim:
        dialogue, hello = await self._client.ask({"do": "prepare"})
        spare = SpareShim(dialogue, hello, groups.next_slot())
        try:
            await groups.place(spare.slot, shim_pid=spare.pid, child_pid=spare.child)
        except BaseException:
            await self._discard(spare)
            raise
        return spare

    def _watch(self, spare: SpareShim) -> None:
        """A spare that is killed, or whose keeper is, closes its connection."""
        asyncio.get_running_loop().add_reader(spare.dialogue.fileno(), self._lost, spare)

    def _unwatch(self, spare: SpareShim) -> None:
        asyncio.get_running_loop().remove_reader(spare.dialogue.fileno())

    def _lost(self, spare: SpareShim) -> None:
        self._unwatch(spare)
        self._ready.remove(spare)
        self._discards.spawn(self._discard(spare), name=f"runtime/discard/{spare.slot}")
        self._wake.set()


async def _drop_groups(groups: SpareGroups, slots: set[str]) -> None:
    """Remove groups that an earlier daemon left, each once no process is in it: the spares of a killed daemon end by
    themselves, on a busy machine only after the next daemon has started."""
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    while slots := {slot for slot in slots if not await groups.drop(slot)}:
        await asyncio.sleep(backoff.delay())


async def _kill(pid: int, start: int) -> None:
    """Kill a process and wait for its end."""
    process = open_process(pid, start)
    if process is None:
        return
    try:
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            async with asyncio.timeout(_GONE_SECONDS):
                await readable(process)
    finally:
        os.close(process)
