"""The runtimes of a node, put together: `process`, and those whose program is installed."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Final

import structlog

from corral.errors import Code, CorralError, Rejected
from corral.runtimes.cgroups.port import CgroupFacts, Cgroups
from corral.runtimes.process.provider import SEGMENT_BYTES, ProcessRuntime
from corral.runtimes.process.run_lookup import RUNTIME
from corral.runtimes.process.workload_context import runtime_of
from corral.runtimes.sessions.multiplexer import Multiplexer, ScreenMultiplexer, TmuxMultiplexer
from corral.runtimes.sessions.provider import SessionRuntime
from corral.sdk.runtime import RuntimeProvider

__all__ = ["Runtimes", "close_runtimes", "open_runtimes", "runtime_of"]

_log = structlog.get_logger("corral.runtimes")

_QUIT_TRIES: Final = 6
_QUIT_PAUSE: Final = 0.02
_INSTALL: Final = "install `{name}` on this node, or choose another runtime"


class Runtimes:
    """All runtimes of a node. They share one keeper, and the control groups."""

    def __init__(
        self, process: ProcessRuntime, sessions: dict[str, SessionRuntime], missing: frozenset[str]
    ) -> None:
        """`missing` are those among `sessions` whose program is not installed."""
        self.process = process
        self._sessions = sessions
        self._missing = missing

    def names(self) -> tuple[str, ...]:
        """The runtimes in which something can be started here."""
        return tuple(sorted({RUNTIME, *self._sessions} - self._missing))

    def get(self, name: str) -> RuntimeProvider:
        """The runtime for a start. RUNTIME_UNAVAILABLE lists the available ones."""
        if name not in self.names():
            raise Rejected(
                Code.RUNTIME_UNAVAILABLE,
                f"this node has no runtime '{name}', but {', '.join(self.names())}",
                hint=_INSTALL.format(name=name) if name in self._missing else "choose one of these",
                field="runtime",
            )
        return self._provider(name)

    def of(self, run_directory: str) -> RuntimeProvider:
        """The runtime for the adoption of a run. A run lives on, and is supervised, after the program that
        showed it was removed from the node."""
        name = runtime_of(run_directory)
        if name != RUNTIME and name not in self._sessions:
            raise Rejected(
                Code.RUNTIME_UNAVAILABLE,
                f"the run in {run_directory} is of runtime '{name}', which this daemon does not have",
                hint="run the version that started it, or a newer one",
            )
        return self._provider(name)

    async def close(self) -> None:
        """Detach from every run. Idempotent."""
        for runtime in self._sessions.values():
            await runtime.close()
        await self.process.close()

    async def end_keeper(self) -> bool:
        """End the keeper when it holds no run; False when it does."""
        return await self.process.end_keeper()

    def _provider(self, name: str) -> RuntimeProvider:
        return self.process if name == RUNTIME else self._sessions[name]


async def open_runtimes(
    data: pathlib.Path,
    cgroups: Cgroups,
    segment_bytes: int = SEGMENT_BYTES,
    *,
    facts: CgroupFacts | None = None,
    spare_shims: int = 0,
) -> Runtimes:
    """Find or start the keeper, prove the control groups, and look which programs are installed. `facts` is
    the result of an earlier `cgroups.prove`, if there is one; `spare_shims` are forked ahead of starts. After a
    failure or a cancellation nothing is left open."""
    process = ProcessRuntime(data, cgroups, segment_bytes, facts=facts, spare_shims=spare_shims)
    multiplexers: tuple[Multiplexer, ...] = (TmuxMultiplexer(), ScreenMultiplexer())
    sessions: dict[str, SessionRuntime] = {}
    missing = frozenset(multiplexer.name for multiplexer in multiplexers if not multiplexer.program)
    runtimes = Runtimes(process, sessions, missing)
    try:
        await process.start_keeper()
        for multiplexer in multiplexers:
            own = ProcessRuntime(
                data,
                cgroups,
                segment_bytes,
                facts=process.facts,
                name=multiplexer.name,
                shared=process,
            )
            sessions[multiplexer.name] = SessionRuntime(own, multiplexer)
            await sessions[multiplexer.name].open()
    except BaseException:
        await close_runtimes(runtimes)
        raise
    _log.info("runtimes.started", runtimes=list(runtimes.names()))
    return runtimes


async def close_runtimes(runtimes: Runtimes) -> None:
    """Detach from every run. A keeper without runs is ended."""
    await runtimes.close()
    try:
        for _ in range(_QUIT_TRIES):  # a shim whose run has just ended may be there for a moment more
            if await runtimes.end_keeper():
                break
            await asyncio.sleep(_QUIT_PAUSE)
    except (CorralError, OSError) as error:
        _log.warning("keeper_stop.failed", reason=str(error))
