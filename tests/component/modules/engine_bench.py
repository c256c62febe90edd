"""An engine over stand-in processes and a book in memory, with short words for what tests do with it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import TracebackType
from typing import Any

from stand_in_house import Script, StandInHouse, StandInProcess

from corral.domain.modules.manifest import (
    Backends,
    CapabilitiesPart,
    HostBackend,
    Manifest,
    ModuleHost,
    Provision,
    Requirement,
    StoragePart,
)
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.lifecycle.restart_backoff import RestartBackoff
from corral.system.clock import SystemClock
from corral.system.controller_config import ModulesSection
from corral.testing.memory_package_store import MemoryPackageStore
from corral.testing.waiting import eventually

QUICK = RestartBackoff(restarts=(0.01, 0.02, 0.04), retry=0.01)


class DirectSupply:
    """Archives are directories already."""

    async def unpacked(self, sha256: str) -> Path:
        return Path("/nowhere") / sha256


class CopiedGenerations:
    """Documents as plain values, by module and generation."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], dict[str, Any]] = {}

    async def copy(self, module: str, source: int, target: int) -> None:
        assert (module, target) not in self.kept
        self.kept[module, target] = dict(self.kept.get((module, source), {}))

    async def drop(self, module: str, generation: int) -> None:
        self.kept.pop((module, generation), None)


def manifest(
    id: str,
    version: str = "1.0.0",
    *,
    provides: dict[str, str] | None = None,
    requires: dict[str, str] | None = None,
    optional: dict[str, str] | None = None,
    hosts: tuple[ModuleHost, ...] = (ModuleHost.CONTROLLER,),
    documents: bool = False,
    hook_deadline_ms: int = 2000,
) -> Manifest:
    backend = HostBackend(entrypoint="demo:Demo", hook_deadline_ms=hook_deadline_ms)
    needed = [Requirement(id=id, version_range=range) for id, range in (requires or {}).items()]
    taken = [Requirement(id=id, version_range=range, optional=True) for id, range in (optional or {}).items()]
    return Manifest(
        manifest_version=1,
        id=id,
        version=version,
        hosts=hosts,
        backend=Backends(controller=backend, daemon=backend),
        storage=StoragePart(documents=documents),
        capabilities=CapabilitiesPart(
            provides=tuple(Provision(id=id, version=version) for id, version in (provides or {}).items()),
            requires=(*needed, *taken),
        ),
    )


def package(
    declared: Manifest, *, sha256: str = "", intent: ModuleIntent = ModuleIntent.ACTIVE
) -> PackageRecord:
    now = dt.datetime.now(dt.UTC)
    return PackageRecord(
        id=declared.id,
        version=declared.version,
        sha256=sha256 or f"{declared.id}-{declared.version}",
        size=1,
        manifest=declared,
        intent=intent,
        installed_at=now,
        updated_at=now,
    )


class EngineBench:
    """`async with EngineBench() as bench`. After the block every process must be gone."""

    def __init__(
        self, *, config: ModulesSection | None = None, book: MemoryPackageStore | None = None
    ) -> None:
        self.book = book or MemoryPackageStore()
        self.house = StandInHouse()
        self.data = CopiedGenerations()
        self.engine = ModuleEngine(
            host=ModuleHost.CONTROLLER,
            store=self.book,
            spawner=self.house,
            supply=DirectSupply(),
            data=self.data,
            config=config or ModulesSection(),
            clock=SystemClock(),
            pace=QUICK,
        )

    async def __aenter__(self) -> EngineBench:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.engine.close(budget=5)
        if error is None:
            assert self.house.alive() == []

    @property
    def journal(self) -> list[str]:
        return self.house.journal

    def script(self, record: PackageRecord) -> Script:
        return self.house.scripts.setdefault(record.sha256, Script())

    async def install(self, record: PackageRecord, script: Script | None = None) -> PackageRecord:
        self.house.scripts[record.sha256] = script or Script()
        return await self.engine.install(record)

    def process(self, id: str) -> StandInProcess:
        return self.house.of(id)

    def record(self, id: str) -> PackageRecord:
        record = self.book.find(id)
        assert record is not None
        return record

    def phase(self, id: str) -> ModulePhase:
        return self.record(id).phase

    def steps(self, id: str) -> list[str]:
        """Its story, as `TO reason`."""
        return [f"{step.to_phase} {step.reason}".strip() for step in self.record(id).history]

    async def until(self, id: str, phase: ModulePhase) -> PackageRecord:
        await eventually(
            lambda: self.phase(id) is phase, state=lambda: (self.record(id).reason, self.steps(id))
        )
        return self.record(id)


def serving(value: object) -> Script:
    """A provider whose `ask` answers this."""
    script = Script()

    async def serve(process: StandInProcess, request: object) -> object:
        return value

    script.serves = serve
    return script
