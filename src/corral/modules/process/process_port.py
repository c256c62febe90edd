"""What the engine needs of module processes; `corral.modules.process` has the real ones."""

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
        """Never blocks; a process that is gone does not mind."""

    async def finish(self, *, grace: float) -> FinishResult:
        """Let it end by itself; after `grace` seconds its whole tree is killed. May be called again."""

    async def kill(self) -> Death:
        """End its whole tree now. May be called again."""

    def sample(self) -> Sample | None: ...


class ModuleSpawner(Protocol):
    """Where processes come from."""

    async def start(
        self, module_id: str, *, paths: Sequence[Path], limits: Limits, serve: Serve, on_notice: Notice
    ) -> RunningModule: ...
