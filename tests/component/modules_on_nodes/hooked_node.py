"""A node without a link whose modules are real processes: what they hear, and what they make of starts."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import pathlib
import textwrap
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from corral.daemon.console.consoles import NodeConsoles
from corral.daemon.hooks.instance_hooks import InstanceHooks
from corral.daemon.link.spool import Spool
from corral.daemon.modules.module_host import served_since, should_run
from corral.daemon.modules.package_store import DiskPackageStore, NodePackage
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import StopOrder
from corral.daemon.supervise.node_runs import NodeRuns
from corral.daemon.supervise.supervision import Supervision
from corral.daemon.workload.start_order import StartOrder, read_start
from corral.domain.groups.group import RestartSpec, StopRungSpec
from corral.domain.groups.plans import Plan, encode_plan
from corral.domain.ids import first_incarnation
from corral.domain.modules.manifest import Backends, HostBackend, Manifest, ModuleHost
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import PackageRecord
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.lifecycle.restart_backoff import RestartBackoff
from corral.modules.package_store import PackageStore
from corral.modules.process import ProcessPool
from corral.modules.scope import Scope
from corral.modules.services.module_log import ModuleLogs
from corral.runtimes.console.log import ConsoleLog
from corral.system.clock import Clock, SystemClock
from corral.system.daemon_config import DaemonConfig, InstancesSection, NodeModulesSection
from corral.system.entropy import SystemEntropy
from corral.testing import workloads
from corral.testing.memory_package_store import MemoryPackageStore
from corral.testing.preloaded_cache import PreloadedCache
from corral.testing.runtime_nodes import open_node_runtime
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import StartInstance
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.plan_pb2 import CompositionPlan

FIRST = first_incarnation(1)
QUICK = RestartBackoff(restarts=(0.01, 0.02, 0.04), retry=0.01)
HEAD = """
import asyncio, ctypes, json, os, pathlib, signal, threading, time
from corral.sdk import *

def say(heard, hook, handle, **more):
    with open(heard, "a") as file:
        line = {"hook": hook, "id": handle.instance_id, "state": handle.state, "adopted": handle.adopted,
                "pid": handle.pid, "at": handle.started_at and handle.started_at.timestamp(), **more}
        file.write(json.dumps(line) + "\\n")
"""
HEARS = """
class Demo(DaemonModule):
    def on_load(self, ctx):
        self.heard = ctx.config["heard"]
    def on_instance_started(self, handle):
        say(self.heard, "started", handle)
    async def on_instance_stopping(self, handle):
        say(self.heard, "stopping", handle)
    def on_instance_stopped(self, handle, exit):
        say(self.heard, "stopped", handle, code=exit.exit_code, signal=exit.signal, ms=exit.duration_ms,
            crashed=exit.crashed, summary=exit.crash_summary)
"""
"""Writes down what it hears."""
WAITS_TO_COME_BACK = HEARS.replace(
    'self.heard = ctx.config["heard"]',
    """self.heard = ctx.config["heard"]
        while os.path.exists(self.heard + ".hold"):
            time.sleep(0.01)""",
)
UNLESS_BROKEN = HEARS.replace(
    'self.heard = ctx.config["heard"]',
    """self.heard = ctx.config["heard"]
        if os.path.exists(self.heard + ".broken"):
            raise RuntimeError("broken")""",
)


def when_told(code: int) -> list[str]:
    """A workload that exits with this code once it is let go."""
    return workloads.shell(f"until [ -e go ]; do sleep 0.02; done; exit {code}")


def changes(body: str) -> str:
    """A module whose `on_instance_starting` does this."""
    hook = textwrap.indent(textwrap.dedent(body), " " * 8)
    return f"class Demo(DaemonModule):\n    async def on_instance_starting(self, spec):\n{hook}"


class Gate:
    """The node's modules as hooks see them; the test says when they are settled."""

    def __init__(self, engine: ModuleEngine, book: PackageStore) -> None:
        self._engine = engine
        self._book = book
        self.open = asyncio.Event()
        self.open.set()
        self.missing: tuple[str, ...] = ()

    def serving(self) -> list[Scope]:
        return self._engine.serving()

    def desired_ids(self) -> set[str]:
        return {record.id for record in self._book.all() if should_run(record)}

    def served_since(self, moment: dt.datetime | None) -> set[str]:
        found = [record for record in self._book.all() if should_run(record)]
        return {record.id for record in found if served_since(record, moment)}

    def awaited(self) -> tuple[str, ...]:
        return self.missing

    async def settled(self) -> tuple[str, ...]:
        if not self.open.is_set():
            await self.open.wait()
        return self.missing


class DirectorySupply:
    def __init__(self, root: pathlib.Path) -> None:
        self._root = root

    async def unpacked(self, sha256: str) -> pathlib.Path:
        return self._root / sha256


class HookedNode:
    """`open`, `close`; `open` again is the next daemon, with the modules to be installed anew, or with
    `keeps_modules` with those that are on its disk."""

    def __init__(
        self,
        data: pathlib.Path,
        *,
        budget: float = 5.0,
        keeps_modules: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.data = data
        self.budget = budget
        self.archives = data.parent / "archives"
        self._keeps_modules = keeps_modules
        self._clock, self._entropy = clock or SystemClock(), SystemEntropy()
        self.sent: list[DaemonMessage] = []
        self._opened = False

    async def open(self, *, settled: bool = True, hooks: bool = True) -> HookedNode:
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.archives.mkdir(exist_ok=True)
        settings = InstancesSection(development=True)
        self.runtime = await open_node_runtime(self.data, settings)
        self.spool = Spool.open(
            self.data / "spool", entropy=self._entropy, log_bytes=1 << 20, max_bytes=1 << 26
        )
        self._consoles = await NodeConsoles(self._clock).__aenter__()
        self._open_engine()
        if not settled:
            self.gate.open.clear()
        config = msgspec.structs.replace(DaemonConfig(), data=self.data, instances=settings)
        self.supervision = Supervision(
            config=config,
            node_runs=NodeRuns(
                config,
                node_id="node-1",
                address="node-1.example",
                cache=PreloadedCache(self.data.parent / "shelf"),
                spool=self.spool,
                entropy=self._entropy,
                send=self._send,
            ),
            runtime=self.runtime,
            consoles=self._consoles,
            clock=self._clock,
            entropy=self._entropy,
            hooks=self.hooks if hooks else None,
        )
        await self.house.__aenter__()
        await self.supervision.begin()
        self._opened = True
        if self._keeps_modules:
            await self.engine.boot()
        return self

    def _open_engine(self) -> None:
        book = self._book = self._open_book() if self._keeps_modules else MemoryPackageStore()
        self.house = ProcessPool(directory=self.data.parent / "house")
        self.engine = ModuleEngine(
            host=ModuleHost.DAEMON,
            store=book,
            spawner=self.house,
            supply=DirectorySupply(self.archives),
            config=NodeModulesSection(leak_grace_seconds=0.3),
            clock=self._clock,
            notices=ModuleLogs(clock=self._clock).notices(),
            pace=QUICK,
            on_serving=lambda scope: self.hooks.module_serves(scope),
        )
        self.gate = Gate(self.engine, book)
        self.hooks = InstanceHooks(modules=self.gate, budget_seconds=self.budget, clock=self._clock)

    def _open_book(self) -> DiskPackageStore:
        def kept(before: NodePackage, after: NodePackage, _: str) -> None:
            if should_run(before.record) and not should_run(after.record):
                self.hooks.module_unwanted(after.id)

        book = DiskPackageStore(self.data / "modules" / "records", clock=self._clock, kept=kept)
        book.load()
        return book

    async def close(self) -> None:
        """Detach, as a daemon does."""
        if not self._opened:
            return
        self._opened = False
        await self.hooks.close()
        await self.engine.close(budget=5)
        await self.supervision.end()
        await self.house.__aexit__(None, None, None)
        await self._consoles.__aexit__()
        await self.spool.close()
        await self.runtime.close()

    async def clear(self) -> None:
        if not self._opened:
            await self.open()
        self.gate.open.set()
        await self.supervision.supervisor.stop_all(StopOrder(reason="the test is over", force=True))
        await self.close()

    def _send(self, message: DaemonMessage) -> bool:
        self.sent.append(message)
        return True

    # --- modules --------------------------------------------------------------------------------
    async def install(self, id: str, code: str, *, hook_ms: int = 2000, memory_mb: int = 0) -> PackageRecord:
        """A module with this code; its class is `Demo`, and `ctx.config["heard"]` a file of its own."""
        return await self.engine.install(self.package(id, code, hook_ms=hook_ms, memory_mb=memory_mb))

    def package(
        self, id: str, code: str, *, version: str = "1.0.0", hook_ms: int = 2000, memory_mb: int = 0
    ) -> PackageRecord:
        backend = HostBackend(entrypoint="demo:Demo", hook_deadline_ms=hook_ms)
        manifest = Manifest(
            manifest_version=1,
            id=id,
            version=version,
            hosts=(ModuleHost.DAEMON,),
            backend=Backends(daemon=backend),
        )
        if memory_mb:
            limits = msgspec.structs.replace(manifest.limits, memory_mb=memory_mb)
            manifest = msgspec.structs.replace(manifest, limits=limits)
        name = f"{id}-{version}"
        directory = self.archives / name
        directory.mkdir(exist_ok=True)
        (directory / "demo.py").write_text(HEAD + code)
        now = dt.datetime.now(dt.UTC)
        return PackageRecord(
            id=id,
            version=version,
            sha256=name,
            size=1,
            manifest=manifest,
            intent=ModuleIntent.ACTIVE,
            settings={"heard": str(self._heard(id))},
            installed_at=now,
            updated_at=now,
        )

    def record(self, id: str) -> PackageRecord | None:
        return self._book.find(id)

    def _heard(self, id: str) -> pathlib.Path:
        return self.archives / f"{id}.heard"

    def heard(self, id: str, about: str = "") -> list[dict[str, Any]]:
        path = self._heard(id)
        lines = path.read_text().splitlines() if path.exists() else []
        told = [json.loads(line) for line in lines]
        return [line for line in told if not about or line["id"] == about]

    def story(self, id: str, about: str = "") -> list[str]:
        return [line["hook"] for line in self.heard(id, about)]

    async def hears(self, id: str, *hooks: str, about: str = "") -> list[dict[str, Any]]:
        """Until the module has heard exactly this."""
        await eventually(lambda: self.story(id, about) == list(hooks), state=lambda: self.heard(id, about))
        return self.heard(id, about)

    # --- instances ------------------------------------------------------------------------------
    async def start(
        self, id: str, command: Sequence[str] = (), *, incarnation: int = FIRST, **fields: Any
    ) -> Run:
        """Begin it and wait until it has its process, or has failed."""
        begun = asyncio.Event()
        run = self.supervision.supervisor.start(
            order(id, plan(command, **fields), incarnation=incarnation), begun=lambda _: begun.set()
        )
        async with asyncio.timeout(60):
            await begun.wait()
        return run

    async def stop(self, id: str, *, force: bool = False) -> Run:
        """Until nothing of it is left."""
        run = await self.supervision.supervisor.stop(
            id, incarnation=0, order=StopOrder(reason="the test says so", force=force)
        )
        return await self.settled(run.order.instance_id)

    def let_go(self, id: str) -> None:
        """What runs `when_told` exits."""
        (self.data / "running" / id / "go").touch()

    async def settled(self, id: str) -> Run:
        async with asyncio.timeout(60):
            await self.supervision.supervisor.settled(id)
        run = self.supervision.supervisor.instances.find(id)
        assert run is not None
        return run

    async def until_run(self, id: str, incarnation: int) -> Run:
        """Until it is in this run, and has its process."""

        def there() -> Run | None:
            run = self.supervision.supervisor.instances.find(id)
            return run if run and run.order.incarnation == incarnation and run.handle else None

        found = await eventually(there)
        assert found is not None
        return found

    async def says(self, id: str, text: str) -> None:
        """Until its console holds this text."""
        run = self.supervision.supervisor.instances.find(id)
        assert run is not None

        def console() -> str:
            with ConsoleLog(run.files.console) as log:
                return b"".join(block.data for block in log.blocks(0, log.end_offset)).decode()

        await eventually(lambda: text in console(), state=console)

    async def reports(self, id: str) -> list[Any]:
        await self.supervision.services.reporter.settled()
        told = [DaemonMessage.FromString(record.body) for record in await self.spool.take(0, limit=10_000)]
        return [m.instance_status for m in told if m.instance_status.instance_id == id]


def plan(command: Sequence[str] = (), **fields: Any) -> Plan:
    values: dict[str, Any] = {
        "group": "test",
        "runtime": "process",
        "command": tuple(command),
        "args": (),
        "env": {},
        "variables": {},
        "memory_mb": 0,
        "cpu": 0.0,
        "pids": 0,
        "console_mb": 16,
        "max_players": 0,
        "run_as": "",
        "isolate": "shared",
        "stdin": "fifo",
        "tty": False,
        "line_buffered": False,
        "stop": (StopRungSpec(signal="SIGTERM", wait_seconds=2),),
        "startup_timeout_seconds": 60,
        "min_alive_ms": 0,
        "max_lifetime_seconds": 0,
        "crash_keep_seconds": 3600,
        "restart": RestartSpec(attempts=0),
    }
    return Plan(**{**values, **fields})


def order(id: str, desired_ids: Plan, *, incarnation: int) -> StartOrder:
    record = encode_plan(desired_ids)
    return read_start(
        StartInstance(
            instance_id=id,
            group=desired_ids.group,
            incarnation=incarnation,
            plan_hash=record.hash,
            composition_plan=CompositionPlan(plan_hash=record.hash, canonical_json=record.body.encode()),
        )
    )


def environment(run: Run) -> dict[str, str]:
    raw = _told(run, "environ").split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in raw if entry)  # type: ignore[misc]


def arguments(run: Run) -> list[str]:
    return [word.decode() for word in _told(run, "cmdline").split(b"\0")[:-1]]


def _told(run: Run, name: str) -> bytes:
    """What /proc says of a run's process. In the middle of an `exec` that is nothing, for a moment."""
    path, until = pathlib.Path(f"/proc/{run.pid}/{name}"), time.monotonic() + 60
    while not (told := path.read_bytes()):
        assert time.monotonic() < until, f"{path} is empty"
    return told
