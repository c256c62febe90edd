"""Module processes for tests: a module with code of the test, and a measurement of the loop's lag."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from corral.modules.process import Limits, ModuleProcess, ProcessPool
from corral.sdk.protocol.messages import (
    CONSTRUCT,
    HOOK_PREFIX,
    LOG,
    Construct,
    Constructed,
    HookAnswer,
    HookArguments,
    LogLine,
    Nothing,
)
from corral.system.aio.tasks import Tasks

DEADLINE: Final = 20.0

LINE: Final = '''
import os, socket, struct

def line():
    """The module's own end of the channel: the socket whose pair another process made."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
            creator = struct.unpack("3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except OSError:
            continue
        if creator not in (0, os.getpid()):
            found.setblocking(True)
            return found
'''
"""Source of a function for modules that bypass the SDK."""

_SOURCE: Final = '''
import asyncio, json, os, socket, struct, sys, threading, time
from corral.sdk import Health, PlatformModule, Response

class Module(PlatformModule):
    def on_load(self, ctx):
        exec(ctx.config["code"], {**globals(), "ctx": ctx, "module": self})

    async def on_start(self, ctx):
        scope = {**globals(), "ctx": ctx, "module": self}
        exec("async def main():\\n    " + ctx.config["code"].replace("\\n", "\\n    "), scope)
        await scope["main"]()


    def register_routes(self, routes):
        routes.get("/bytes", self.stream, streams=True)

    async def stream(self, request):
        """As many kilobytes as asked for; tells how many it has handed out."""
        module = self
        module.handed, module.closed = 0, ""

        async def pieces():
            try:
                for _ in range(int(request.query["kilobytes"])):
                    module.handed += 1024
                    yield b"x" * 1024
            finally:
                module.closed = "closed"

        return Response.stream(pieces())

    async def health_check(self):
        return Health(healthy=True, detail=f"{getattr(self, 'handed', 0)} {getattr(self, 'closed', '')}")
'''


class RecordedTraffic:
    """The notices and requests of a module; answers `Nothing` to all of them."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.notices = 0
        self.calls: list[str] = []

    async def serve(self, method: str, _body: msgspec.Raw) -> object:
        self.calls.append(method)
        return Nothing()

    def note(self, method: str, body: msgspec.Raw) -> None:
        self.notices += 1
        if method == LOG and len(self.lines) < 1000:
            self.lines.append(msgspec.msgpack.decode(body, type=LogLine))

    @property
    def messages(self) -> list[str]:
        return [line.message for line in self.lines]


class Workbench:
    """Starts modules in a process pool."""

    def __init__(self, pool: ProcessPool, directory: pathlib.Path) -> None:
        self.pool = pool
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "bench_module.py").write_text(LINE + _SOURCE)

    async def start(
        self,
        code: str = "",
        *,
        recorded: RecordedTraffic | None = None,
        limits: Limits | None = None,
        module_id: str = "bench",
    ) -> ModuleProcess:
        """A constructed module whose `on_load` (in a thread) and `on_start` (on its loop) run `code`."""
        recorded = recorded or RecordedTraffic()
        process = await self.pool.start(
            module_id,
            paths=[self.directory],
            limits=limits or Limits(memory_mb=256, processes=64),
            serve=recorded.serve,
            on_notice=recorded.note,
        )
        body = construct_body(code, module_id, self.directory)
        await process.call(CONSTRUCT, body, answer=Constructed, deadline=DEADLINE)
        return process


def construct_body(code: str, module_id: str, directory: pathlib.Path) -> Construct:
    manifest = {"manifestVersion": 1, "id": module_id, "version": "1.0.0", "hosts": ["controller"]}
    return Construct(
        module_id=module_id,
        version="1.0.0",
        host="controller",
        entrypoint="bench_module:Module",
        artifact_path=str(directory),
        manifest=msgspec.Raw(msgspec.msgpack.encode(manifest)),
        config={"code": code},
    )


async def run_hook(process: ModuleProcess, hook: str = "on_load", *, deadline: float = DEADLINE) -> Any:
    answer = await process.call(HOOK_PREFIX + hook, HookArguments(), answer=HookAnswer, deadline=deadline)
    return answer.value


class LoopLag:
    """The longest time that the loop was blocked."""

    def __init__(self) -> None:
        self.worst = 0.0


@contextlib.asynccontextmanager
async def measured_lag() -> AsyncIterator[LoopLag]:
    lag = LoopLag()

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            lag.worst = max(lag.worst, time.monotonic() - began - 0.005)

    async with Tasks() as tasks:
        tasks.spawn(tick(), name="testing/lag")
        yield lag
