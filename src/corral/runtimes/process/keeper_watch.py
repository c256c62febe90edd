"""The daemon's watch over the keeper: another one is started as soon as it dies, and is handed every run.

A new keeper is no ancestor of the existing runs, and has no descriptor of them. It gets those that the daemon
holds of each: the read end of its console, its terminal, and pidfds of its main process and of its shim. From
then on it replaces a dead shim also while no daemon runs.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

import structlog

from corral.errors import CorralError
from corral.runtimes.keeper.proc_facts import has_ended, open_process
from corral.runtimes.process.keeper_client import KeeperClient, KeeperFacts
from corral.runtimes.process.live_run import LiveRun
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks

_log = structlog.get_logger("corral.runtimes.process")

_LONG_LIFE: Final = 10.0
"""A keeper that lived that long is replaced at once, another one after a growing pause."""
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 5.0
_RETRY_SECONDS: Final = 1.0


class KeeperWatch:
    """The watch of one data directory. Call `start` first; `close` detaches, the keeper lives on."""

    def __init__(self, client: KeeperClient) -> None:
        self.client = client
        self._runs: set[LiveRun] = set()
        self._waiting: set[LiveRun] = set()
        """Runs that this keeper has not received yet."""
        self._wake = asyncio.Event()
        self._keeper: int | None = None
        """Its pidfd."""
        self.generation = 0
        """Changes with each keeper that is watched."""
        self._since = 0.0
        self._backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._tasks = Tasks()

    async def start(self) -> KeeperFacts:
        """Find or start the keeper, and watch it from now on. Idempotent."""
        facts = await self.client.ensure()
        if not self._tasks:
            self._watch_keeper(facts)
            self._tasks.spawn(self._run(), name="runtime/keeper")
        return facts

    async def quit(self) -> bool:
        """End the keeper when it holds no run; False when it does, and is watched as before."""
        watched = bool(self._tasks)
        await self.close()
        if await self.client.quit():
            return True
        if watched:
            await self.start()
        return False

    async def close(self) -> None:
        """Idempotent."""
        await self._tasks.close()
        self._leave_keeper()

    def hold(self, run: LiveRun, *, started_by: int | None = None) -> None:
        """Hand the run to this keeper and to each that follows, until it is released. The generation of keeper that
        started it has it already. Where another keeper did, because this one is dead, all runs are handed over as soon
        as that is noticed."""
        self._runs.add(run)
        if started_by != self.generation or run.lacks_terminal:
            self._waiting.add(run)
            self._wake.set()

    def release(self, run: LiveRun) -> None:
        self._runs.discard(run)
        self._waiting.discard(run)

    def _watch_keeper(self, facts: KeeperFacts) -> None:
        """Watch the keeper; one that has ended already is replaced, too."""
        self._leave_keeper()
        self.generation += 1
        self._keeper = open_process(facts.pid, facts.start)
        self._since = asyncio.get_running_loop().time()
        self._waiting |= self._runs
        self._wake.set()
        if self._keeper is not None:
            asyncio.get_running_loop().add_reader(self._keeper, self._wake.set)

    def _leave_keeper(self) -> None:
        if self._keeper is not None:
            asyncio.get_running_loop().remove_reader(self._keeper)
            os.close(self._keeper)
            self._keeper = None

    async def _run(self) -> None:
        """The task. Failures are retried: no other component does."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._keeper is None or has_ended(self._keeper):
                    await self._replace_keeper()
                await self._hand_over()
            except (CorralError, OSError) as error:
                _log.warning("keeper_watch.failed", reason=str(error))
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)
            except Exception:
                _log.exception("keeper_watch.failed")
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)

    async def _replace_keeper(self) -> None:
        lived = asyncio.get_running_loop().time() - self._since
        self._leave_keeper()
        _log.warning("keeper.lost", runs=len(self._runs))
        if lived > _LONG_LIFE:
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.delay())
        self._watch_keeper(await self.client.ensure())

    async def _hand_over(self) -> None:
        try:
            for run in list(self._waiting):
                if run not in self._runs or await self._has(run):
                    self._waiting.discard(run)
        except (CorralError, OSError) as error:
            _log.warning("keeper_handover.failed", runs=len(self._waiting), reason=str(error))
        if self._waiting:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)

    async def _has(self, run: LiveRun) -> bool:
        """Whether the keeper has the run now."""
        held, terminal = await self.client.hold(run.directory, held=run.held)
        run.keep_terminal(terminal)
        return held
