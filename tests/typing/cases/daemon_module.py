"""A daemon module as an author writes it; every line is checked by mypy --strict."""

from __future__ import annotations

import datetime as dt
from typing import assert_type

from corral.sdk import (
    INSTANCE_FILES,
    DaemonModule,
    ExitInfo,
    FileEntry,
    Host,
    InstanceFiles,
    InstanceHandle,
    InstanceSpec,
    ModuleContext,
    PlatformModule,
    SideProcess,
)


class Flags(DaemonModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        assert_type(ctx.host, Host)
        files = ctx.capabilities.require(INSTANCE_FILES, InstanceFiles)
        assert_type(await files.call.walk(instance_id="a"), list[FileEntry])
        assert_type(await files.call.read(instance_id="a", path="b"), bytes)

    def on_instance_starting(self, spec: InstanceSpec) -> None:
        spec.jvm_args += ["-Xlog:gc*"]
        spec.env = {"A": "b"}
        spec.args = 3  # E: assignment

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        assert_type(handle.pid, int)
        assert_type(handle.started_at, dt.datetime | None)
        handle.pid = 3  # E: misc

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        assert_type(exit.exit_code, int | None)
        assert_type(exit.crashed, bool)


class Beside(DaemonModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        here = handle.instance_id
        assert_type(await self.ctx.files.read(here, "a.log", offset=3), bytes)
        assert_type(await self.ctx.files.walk(here, limit=3), list[FileEntry])
        assert_type(await self.ctx.files.remove(here, "a.log"), bool)
        await self.ctx.files.write(here, "a.log", b"", append=True)
        await self.ctx.files.write(here, "a.log", "text")  # E: arg-type
        side = await self.ctx.processes.spawn(here, "exporter", ["exporter"], env={"A": "b"})
        assert_type(side, SideProcess)
        assert_type(side.exit_code, int | None)
        assert_type(await self.ctx.processes.list(here), list[SideProcess])
        assert_type(await self.ctx.processes.stop(here, "exporter", grace=1), SideProcess | None)
        await self.ctx.processes.spawn(here, "exporter", ["exporter"], env={"A": 3})  # E: dict-item


class Wrong(DaemonModule):
    async def on_load(self, ctx: str) -> None:  # E: override
        ...

    def on_stop(self, ctx: ModuleContext) -> str:  # E: override
        return ""


class Both(PlatformModule, DaemonModule):
    """One class for both hosts."""
