"""A node for a daemon module on the bench: instances that the test starts and stops.

Their directories are real and empty, below a temporary one; `ctx.files` works there as on a node. Programs
that `ctx.processes` spawns are not executed; the test ends them.
"""

from __future__ import annotations

import itertools
import shutil
import signal as signals
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from corral.daemon.hooks.change_validation import BadChange, check_change, read_answer
from corral.daemon.hooks.start_changes import difference, merge
from corral.daemon.modules.file_operations import ModuleFiles
from corral.daemon.modules.process_operations import ModuleProcesses, body_of
from corral.daemon.prepare.prepared_start import StartRules, values_of
from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected
from corral.sdk.instances import ExitInfo, InstanceHandle, InstanceSpec
from corral.sdk.processes import SideProcess
from corral.sdk.runtime import RunExit, RunHandle, SideRun
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock, SystemClock
from corral.testing.bench_storage import BenchScope


class BenchSideRuns:
    """Of one instance; by the rules of a runtime: one of a name at a time, eight at once."""

    def __init__(self, now_ms: Callable[[], int], pids: itertools.count[int], missing: set[str]) -> None:
        self.sides: dict[str, SideRun] = {}
        self.environments: dict[str, dict[str, str]] = {}
        self._now_ms = now_ms
        self._pids = pids
        self._missing = missing

    async def spawn_beside(
        self, handle: RunHandle, name: str, command: tuple[str, ...], environment: dict[str, str]
    ) -> SideRun:
        known = self.sides.get(name)
        if known is not None and known.running:
            return known
        if command[0] in self._missing:
            raise Rejected(Code.COMMAND_NOT_FOUND, f"command '{command[0]}' was not found in its PATH")
        if sum(side.running for side in self.sides.values()) >= 8:
            raise Rejected(Code.CONFLICT, f"8 processes run beside run {handle.run_name} already")
        self.environments[name] = dict(environment)
        self.sides[name] = SideRun(
            name=name, command=command, pid=next(self._pids), started_at_ms=self._now_ms(), running=True
        )
        return self.sides[name]

    async def list_beside(self, handle: RunHandle) -> tuple[SideRun, ...]:  # noqa: ARG002 - as a runtime's
        return tuple(self.sides[name] for name in sorted(self.sides))

    async def stop_beside(self, handle: RunHandle, name: str, *, grace: float) -> SideRun | None:  # noqa: ARG002
        if name in self.sides:
            self.end(name, signal="SIGTERM")
        return self.sides.get(name)

    def end(self, name: str, *, code: int = 0, signal: str = "", output: str = "") -> None:
        """End it, by itself or by a signal; no-op when it has ended."""
        side = self.sides[name]
        if side.running:
            number = signals.Signals[signal].value if signal else 0
            ended = RunExit(known=True, code=0 if signal else code, signal=number, ended_at_ms=self._now_ms())
            self.sides[name] = msgspec.structs.replace(side, running=False, exit=ended, output=output)

    def end_all(self) -> None:
        for name in self.sides:
            self.end(name, signal="SIGTERM")


Hook = Callable[..., Awaitable[Any]]


class ChangeDropped(AssertionError):
    """The module's changes of a start would be dropped on a node; the text is the reason."""


class _Files(msgspec.Struct, frozen=True):
    directory: Path


class BenchInstance:
    """One instance, with the interface of a run."""

    def __init__(self, spec: InstanceSpec, directory: Path, runtime: BenchSideRuns) -> None:
        self.spec = spec
        self.name = f"{spec.instance_id}.1"
        self.directory = directory
        self.files = _Files(directory)
        self.runtime = runtime
        self.handle: RunHandle | None = None
        self.shown = InstanceHandle(
            instance_id=spec.instance_id, group=spec.group, port=spec.port, work_dir=str(directory)
        )


class BenchNode:
    """`bench.node`. Instances are named by their ids; each step calls the module's hook and returns when it
    has answered.

    ```python
    spec = await bench.node.starting("lobby-1", jvm_args=["-Xmx1G"])
    assert "-Xlog:gc*" in spec.jvm_args
    await bench.node.started("lobby-1")
    await bench.node.stopped("lobby-1", exit_code=1, crashed=True)
    ```
    """

    def __init__(self, directory: Path, manifest: Manifest, hook: Hook, clock: Clock) -> None:
        self._directory = directory
        self._hook = hook
        self._clock = clock
        self._module_id = manifest.id
        self._scope = BenchScope(module_id=manifest.id, manifest=manifest)
        self._pids = itertools.count(40_001)
        self._instances: dict[str, BenchInstance] = {}
        self.missing_commands: set[str] = set()
        """Commands that cannot be spawned: COMMAND_NOT_FOUND."""
        files = ModuleFiles(directory_of=self._find_directory, writers=KeyedLocks(), clock=SystemClock())
        processes = ModuleProcesses(find_run=self._instances.get)
        self._operations = {one.method: one for one in (*files.operations(), *processes.operations())}

    # --- the steps of an instance ---------------------------------------------------------------

    async def starting(
        self,
        instance_id: str,
        *,
        group: str = "",
        jvm_args: Sequence[str] = (),
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> InstanceSpec:
        """`on_instance_starting`; the instance as the module leaves it. `ChangeDropped` when a node would
        drop its changes. `fields` are more of InstanceSpec's; with `is_java=False` no jvm_args are accepted.
        """
        spec = self._add(
            instance_id, group=group, jvm_args=list(jvm_args), args=list(args), env=dict(env or {}), **fields
        )
        answer = await self._hook("on_instance_starting", spec=spec)
        if answer is None:
            return spec
        original = values_of(spec)
        try:
            change = difference(original, read_answer(answer, original))
            check_change(change, StartRules(takes_jvm_args=spec.is_java))
        except BadChange as bad:
            raise ChangeDropped(str(bad)) from bad
        values = merge(original, {self._module_id: change})
        spec.jvm_args, spec.args, spec.env = list(values.jvm_args), list(values.args), values.env
        return spec

    async def started(self, instance_id: str, *, adopted: bool = False, **fields: Any) -> InstanceHandle:
        """`on_instance_started`; an unknown instance starts without the hook before it, as one that ran
        before the module."""
        if instance_id not in self._instances:
            self._add(instance_id)
        instance = self._instances[instance_id]
        pid = next(self._pids)
        instance.handle = RunHandle(
            runtime="bench",
            run_name=instance.name,
            run_directory=str(instance.directory),
            pid=pid,
            started_at_ms=self._now_ms(),
        )
        given = {
            "pid": pid,
            "started_at": self._clock.now(),
            "state": "RUNNING",
            "adopted": adopted,
            **fields,
        }
        instance.shown = msgspec.structs.replace(instance.shown, **given)
        await self._hook("on_instance_started", handle=instance.shown)
        return instance.shown

    async def stopping(self, instance_id: str) -> InstanceHandle:
        """`on_instance_stopping`."""
        instance = self._instances[instance_id]
        instance.shown = msgspec.structs.replace(instance.shown, state="STOPPING")
        await self._hook("on_instance_stopping", handle=instance.shown)
        return instance.shown

    async def stopped(self, instance_id: str, **fields: Any) -> ExitInfo:
        """`on_instance_stopped`; its processes have ended with it, its directory is still there. `fields` are
        those of ExitInfo; without any it ended with exit code 0."""
        instance = self._instances[instance_id]
        instance.runtime.end_all()
        instance.handle = None
        instance.shown = msgspec.structs.replace(instance.shown, state="STOPPED")
        exit = ExitInfo(**(fields or {"exit_code": 0}))
        await self._hook("on_instance_stopped", handle=instance.shown, exit=exit)
        return exit

    def forget(self, instance_id: str) -> None:
        """Remove its directory; the node does not know it any more."""
        shutil.rmtree(self._instances.pop(instance_id).directory)

    # --- files and processes --------------------------------------------------------------------

    def path(self, instance_id: str) -> Path:
        """The instance's directory, for a test to read and to put files into."""
        return self._instances[instance_id].directory

    def processes(self, instance_id: str) -> list[SideProcess]:
        """The module's processes beside the instance, by name."""
        sides = self._instances[instance_id].runtime.sides
        return [
            msgspec.convert(body_of(sides[name]), SideProcess, from_attributes=True) for name in sorted(sides)
        ]

    def environment_of(self, instance_id: str, name: str) -> dict[str, str]:
        """The variables that the module gave a process beside the instance's own environment."""
        return self._instances[instance_id].runtime.environments[self._stored(name)]

    def end_process(
        self, instance_id: str, name: str, *, exit_code: int = 0, signal: str = "", output: str = ""
    ) -> None:
        """End it, by itself or by a signal (`SIGKILL`); the module is not notified, as on a node."""
        runtime = self._instances[instance_id].runtime
        runtime.end(self._stored(name), code=exit_code, signal=signal, output=output)

    # --- behind the bench -----------------------------------------------------------------------

    async def serve(self, method: str, raw: msgspec.Raw) -> object:
        operation = self._operations.get(method)
        if operation is None:
            raise Rejected(Code.NOT_FOUND, f"unknown method '{method}'")
        body = msgspec.msgpack.decode(raw, type=operation.body)
        return await operation.handler(self._scope, body)  # type: ignore[arg-type]  # all of a scope it needs

    def _find_directory(self, instance_id: str) -> Path | None:
        instance = self._instances.get(instance_id)
        return None if instance is None else instance.directory

    def _add(self, instance_id: str, *, group: str = "", **fields: Any) -> InstanceSpec:
        directory = self._directory / instance_id
        directory.mkdir(exist_ok=True)
        usual = {"node_id": "bench", "port": 25565, "memory_mb": 1024, "work_dir": str(directory)}
        group = group or instance_id.rpartition("-")[0] or instance_id
        spec = InstanceSpec(instance_id=instance_id, group=group, **{**usual, **fields})
        sides = BenchSideRuns(self._now_ms, self._pids, self.missing_commands)
        self._instances[instance_id] = BenchInstance(spec, directory, sides)
        return spec

    def _stored(self, name: str) -> str:
        return f"{self._module_id}.{name}"

    def _now_ms(self) -> int:
        return round(self._clock.now().timestamp() * 1000)
