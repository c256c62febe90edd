"""An engine over real module processes, whose archives are directories of a test."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from engine_bench import QUICK, package

from corral.domain.modules.manifest import Manifest, ModuleHost
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, Rejected
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.process import ProcessPool
from corral.modules.services.host_operations import Operation
from corral.modules.services.module_log import ModuleLogs
from corral.system.clock import SystemClock
from corral.system.controller_config import ModulesSection
from corral.testing.memory_package_store import MemoryPackageStore
from corral.testing.waiting import eventually


class DirectorySupply:
    """`sha256` is the name of a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def unpacked(self, sha256: str) -> Path:
        path = self.root / sha256
        if not path.is_dir():
            raise Rejected(Code.NOT_FOUND, f"no archive {sha256}")
        return path


class RealEngine:
    """`async with RealEngine(tmp_path) as bench`."""

    def __init__(
        self,
        directory: Path,
        *,
        config: ModulesSection | None = None,
        operations: tuple[Operation, ...] = (),
        hold: float = 15.0,
    ) -> None:
        self.root = directory / "archives"
        self.root.mkdir(parents=True)
        self.book = MemoryPackageStore()
        self.house = ProcessPool(directory=directory / "house", hold=hold)
        self.engine = ModuleEngine(
            host=ModuleHost.CONTROLLER,
            store=self.book,
            spawner=self.house,
            supply=DirectorySupply(self.root),
            operations=operations,
            config=config or ModulesSection(leak_grace_seconds=2),
            clock=SystemClock(),
            notices=ModuleLogs(clock=SystemClock()).notices(),
            pace=QUICK,
        )

    async def __aenter__(self) -> RealEngine:
        await self.house.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.engine.close(budget=10)
        alive = list(self.house.processes.values())
        await self.house.__aexit__(None, None, None)
        if error is None:
            assert alive == []

    def written(self, declared: Manifest, code: str, **more: Any) -> PackageRecord:
        """The package of a module with this code; its class is `demo:Demo`."""
        record = package(declared, **more)
        directory = self.root / record.sha256
        directory.mkdir()
        (directory / "demo.py").write_text("from corral.sdk import *\n" + textwrap.dedent(code))
        return record

    async def install(self, declared: Manifest, code: str) -> PackageRecord:
        return await self.engine.install(self.written(declared, code))

    def record(self, id: str) -> PackageRecord:
        record = self.book.find(id)
        assert record is not None
        return record

    async def until(self, id: str, phase: ModulePhase) -> PackageRecord:
        await eventually(lambda: self.record(id).phase is phase, state=lambda: self.record(id))
        return self.record(id)


def packed(**values: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(values))
