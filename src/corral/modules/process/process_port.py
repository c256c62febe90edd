"""Ports of module processes: what the engine needs of them, and the control group a host may put them in.

`corral.modules.process` has the implementation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from corral.modules.process.process_values import Death, FinishResult, Limits, Notice, Sample, Serve

T = TypeVar("T")


class RunningModule(Protocol):
    """One module's process, from the host's side. Calls raise `CallOverrun`, `ModuleRaised`, `ProcessGone`
    or `ModuleBusy` of `corral.modules.process.call_failures`, and nothing else."""

    @property
    def module_id(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def death(self) -> asyncio.Future[Death]:
        """Done exactly once, when it is over."""

    async def call(self, method: str, body: object, *, answer: type[T], deadline: float) -> T: ...

    def stream(
        self, method: str, body: object, *, answer: type[T], deadline: float
    ) -> AbstractAsyncContextManager[tuple[T, AsyncIterator[bytes]]]: ...

    def notify(self, method: str, body: object) -> None:
        """Send a notice. Never blocks; no effect when the process is gone."""

    async def finish(self, *, grace: float) -> FinishResult:
        """Let it end by itself; after `grace` seconds its whole tree is killed. May be called again."""

    async def kill(self) -> Death:
        """End its whole tree now. May be called again."""

    def sample(self) -> Sample | None: ...


class ModuleSpawner(Protocol):
    """Port that starts module processes."""

    async def start(
        self, module_id: str, *, paths: Sequence[Path], limits: Limits, serve: Serve, on_notice: Notice
    ) -> RunningModule: ...


class Confinement(Protocol):
    """`name` is unique among the processes that live; `enter` comes first and `leave` last."""

    async def enter(self, name: str, pid: int, limits: Limits) -> None:
        """Called before any of the module's code runs, so everything it starts is inside. After a failure the
        process is not used."""

    async def kill(self, name: str) -> None:
        """Kill everything inside at once. Idempotent; a failure has no effect, since the process tree is
        killed anyway."""

    def usage(self, name: str) -> Sample | None:
        """Usage of everything inside; None: not known, measure the process tree. Does not block."""

    async def leave(self, name: str) -> None:
        """Remove the group, which is empty. Idempotent."""


class NoConfinement:
    """No control groups: limits of the process and the watch on its tree apply."""

    async def enter(self, name: str, pid: int, limits: Limits) -> None:
        pass

    async def kill(self, name: str) -> None:
        pass

    def usage(self, name: str) -> Sample | None:  # noqa: ARG002 - as the port has it
        return None

    async def leave(self, name: str) -> None:
        pass
