"""One inotify descriptor for all the consoles in which something is awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from corral.daemon.console.growth_watch import GrowthWatch
from corral.system.aio.waits import set_within


class Growth:
    """Whether one console grew."""

    def __init__(self, watch: GrowthWatch[str], directory: str) -> None:
        self._watch = watch
        self._directory = directory
        self._grown = asyncio.Event()

    def tell(self) -> None:
        self._grown.set()

    def arm(self) -> None:
        """From now on; look at the console after this call, then wait."""
        self._grown.clear()
        self._watch.arm(self._directory, self._directory)

    async def within(self, seconds: float) -> bool:
        """Until it grows, at most so long; False: it did not, as far as anybody knows."""
        return await set_within(self._grown, seconds)


class ConsoleGrowth:
    """One a daemon. Use as a context manager, within a running loop."""

    def __init__(self) -> None:
        self._watch: GrowthWatch[str] = GrowthWatch(self._tell)
        self._waiting: dict[str, list[Growth]] = {}

    def __enter__(self) -> ConsoleGrowth:
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()

    @contextlib.contextmanager
    def follow(self, directory: str) -> Iterator[Growth]:
        """Several may follow one console."""
        growth = Growth(self._watch, directory)
        self._waiting.setdefault(directory, []).append(growth)
        try:
            yield growth
        finally:
            self._waiting[directory].remove(growth)
            if not self._waiting[directory]:
                del self._waiting[directory]
                self._watch.disarm(directory)

    def _tell(self, directory: str) -> None:
        for growth in self._waiting.get(directory, ()):
            growth.tell()
