"""Warm trees: directories built ahead, so that the next start of the same tree takes one by a rename.

They have only the files that are equal for every run: layers, artifacts and first-run results, before variables and
patches. They are built one at a time, and only while nothing else is prepared.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog

from corral.daemon.prepare.working_directories import WARM, WorkingDirectories
from corral.daemon.workload.start_stages import StageFailed
from corral.errors import CorralError
from corral.system.aio.tasks import Tasks, set_within
from corral.system.entropy import Entropy, new_id

_MOST_KEYS: Final = 16
_QUIET_SECONDS: Final = 0.2
_IDLE_SECONDS: Final = 3600.0
_log = structlog.get_logger("corral.daemon.prepare")

MakeTree = Callable[[pathlib.Path], Awaitable[None]]


class WarmTrees:
    """Use it from the loop only; `close` ends the building."""

    def __init__(
        self,
        directories: WorkingDirectories,
        *,
        entropy: Entropy,
        each: int,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._directories = directories
        self._root = directories.running / WARM
        self._entropy = entropy
        self._each = each
        self._idle_seconds = idle_seconds
        self._used: dict[str, float] = {}
        """When each tree was requested last, by the loop's clock."""
        self._ready: OrderedDict[str, list[pathlib.Path]] = OrderedDict()
        self._requested: OrderedDict[str, MakeTree] = OrderedDict()
        self._busy = 0
        self._wake = asyncio.Event()
        self._tasks = Tasks()

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        """While a start is prepared, no tree is built ahead."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._wake.set()

    def take(self, key: str, target: pathlib.Path) -> bool:
        """Rename a tree to `target`; False when there is none."""
        found = self._ready.get(key)
        while found:
            try:
                found.pop().rename(target)
            except OSError as error:
                _log.warning("warm_tree.lost", reason=str(error))
            else:
                return True
        return False

    def request(self, key: str, make: MakeTree) -> None:
        """Have some of these built from now on; the trees longest unused are removed."""
        if not self._each:
            return
        self._ready.setdefault(key, [])
        self._ready.move_to_end(key)
        self._used[key] = asyncio.get_running_loop().time()
        while len(self._ready) > _MOST_KEYS:
            self._forget(next(iter(self._ready)))
        self._requested[key] = make
        self._wake.set()
        if not self._tasks:
            self._tasks.spawn(self._run(), name="prepare/warm")

    def _forget(self, key: str) -> None:
        self._requested.pop(key, None)
        self._used.pop(key, None)
        for tree in self._ready.pop(key, ()):
            self._directories.drop(tree)

    def _drop_idle(self) -> None:
        """Remove the trees of versions that are not started any more, and of removed groups."""
        oldest = asyncio.get_running_loop().time() - self._idle_seconds
        for key in [key for key, used in self._used.items() if used < oldest]:
            self._forget(key)

    def clear(self) -> None:
        """Remove all trees to free their room."""
        for trees in self._ready.values():
            while trees:
                self._directories.drop(trees.pop())
        self._requested.clear()

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            await set_within(self._wake, self._idle_seconds)
            self._wake.clear()
            self._drop_idle()
            await asyncio.sleep(_QUIET_SECONDS)  # a burst of starts comes first
            while self._requested and not self._busy:
                key, make = self._requested.popitem(last=False)
                await self._fill(key, make)

    async def _fill(self, key: str, make: MakeTree) -> None:
        trees = self._ready.get(key)
        while trees is not None and len(trees) < self._each:
            if self._busy:
                self._requested.setdefault(key, make)
                return
            making = self._root / new_id("making", self._entropy)
            try:
                self._root.mkdir(mode=0o700, exist_ok=True)
                await make(making)
                trees.append(making.rename(self._root / new_id(key[:16], self._entropy)))
                if self._ready.get(key) is not trees:  # removed meanwhile
                    self._directories.drop(trees.pop())
                    return
            except (CorralError, OSError, StageFailed) as error:
                _log.info("warm_tree.failed", reason=str(error))
                self._directories.drop(making)
                return
            except Exception:  # the other trees can still be built
                _log.exception("warm_tree.failed")
                self._directories.drop(making)
                return
            except BaseException:
                self._directories.drop(making)
                raise
