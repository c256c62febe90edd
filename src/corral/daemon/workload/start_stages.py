"""Stages of a start, by their names in answers and reports."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, cast

import structlog

from corral.daemon.node.disk_space import as_ours
from corral.errors import Code, CorralError
from corral.wire.v1.instance_pb2 import StartPreparationStage

_log = structlog.get_logger("corral.daemon.workload")

VALIDATION: Final = "VALIDATION"
TEMPLATE_APPLY: Final = "TEMPLATE_APPLY"
RUNTIME_PROVISION: Final = "RUNTIME_PROVISION"
EXTENSION_PROVISION: Final = "EXTENSION_PROVISION"
BOOTSTRAP_WARMUP: Final = "BOOTSTRAP_WARMUP"
VARIABLE_SUBSTITUTION: Final = "VARIABLE_SUBSTITUTION"
CONFIG_PATCH: Final = "CONFIG_PATCH"
PROCESS_START: Final = "PROCESS_START"


class StageFailed(Exception):
    """A stage failed; `error` is the reason."""

    def __init__(self, stage: str, error: CorralError) -> None:
        super().__init__(f"{stage}: {error}")
        self.stage = stage
        self.error = error


def stage_number(name: str) -> StartPreparationStage:
    return cast(StartPreparationStage, StartPreparationStage.Value(f"START_PREPARATION_STAGE_{name}"))


class StartProgress:
    """The current stage of a preparation, and how long each stage took. `entered` is called for every stage at once, in
    the loop's thread, wherever the stage runs; the callee decides how often to report it."""

    def __init__(
        self,
        entered: Callable[[str], None] | None = None,
        *,
        run: str = "",
        stored: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`stored` waits until the intent of the run is on disk."""
        self._entered = entered
        self._run = run
        self._stored = stored
        self._loop = asyncio.get_running_loop() if entered is not None else None
        self._thread = threading.get_ident()
        self.took_ms: dict[str, float] = {}
        self.secret_files: set[str] = set()
        """The paths into which secrets were filled."""
        self.kept_files: dict[str, str] = {}
        """In a static directory: the files that stay although templates give others for them, and why."""

    async def until_stored(self) -> None:
        """Wait until the intent of the run is on disk, before anything is made that stays: what no intent names would
        never be removed. StageFailed when it cannot be written."""
        if self._stored is not None:
            await self._stored()

    def _enter(self, name: str) -> None:
        if self._entered is None or self._loop is None:
            return
        if threading.get_ident() == self._thread:
            self._entered(name)
        else:
            self._loop.call_soon_threadsafe(self._entered, name)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """An exception within is a failure of this stage. A stage may have several parts."""
        self._enter(name)
        began = time.perf_counter()
        try:
            yield
        except CorralError as error:
            raise StageFailed(name, error) from error
        except OSError as error:
            code = Code.SPAWN_FAILED if name in (VALIDATION, PROCESS_START) else Code.FILE_UNREADABLE
            raise StageFailed(name, as_ours(error, doing=name, otherwise=code)) from error
        finally:
            passed = (time.perf_counter() - began) * 1000
            _log.debug("stage.finished", stage=name, run=self._run, took_ms=round(passed, 1))
            self.took_ms[name] = round(self.took_ms.get(name, 0.0) + passed, 1)
