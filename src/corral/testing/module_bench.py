"""A module class on the bench: in the test's own process, behind the very messages a host sends.

```python
async def test_a_round_is_counted():
    async with ModuleBench(Stats, manifest={"events": {"subscribes": ["ROUND_OVER"]}}) as bench:
        await bench.start()
        await bench.emit("ROUND_OVER", {"winner": "red"})
        answer = await bench.request("GET", "/rounds")
        assert answer.json(int) == 1
```

A daemon module is given `host="daemon"`, and instances by `bench.node`:

```python
    async with ModuleBench(GcLog, host="daemon") as bench:
        await bench.start()
        spec = await bench.node.starting("lobby-1", jvm_args=["-Xmx1G"])
        assert spec.jvm_args == ["-Xmx1G", "-Xlog:gc*"]
        await bench.node.started("lobby-1")
        await bench.node.stopped("lobby-1", exit_code=0)
```

Nothing is called directly: a value that could not travel to a real module does not travel here either.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from corral.domain.modules.manifest import Manifest
from corral.modules.manifest.settings import check_settings
from corral.sdk.capabilities import Capabilities, CapabilityBinding
from corral.sdk.context import ModuleContext
from corral.sdk.protocol import messages as m
from corral.sdk.runner.connection import Connection
from corral.sdk.runner.lingering_work import look_around
from corral.sdk.runner.log_output import LogBridge
from corral.sdk.runner.module_server import ModuleServer
from corral.sdk.runner.workers import Workers
from corral.testing.bench_host import (
    BenchAnswer,
    BenchClock,
    BenchHost,
    BenchTask,
    ConsumerLink,
    find_route,
    matches_subscription,
    shown_values,
    written_manifest,
)
from corral.testing.bench_node import BenchNode
from corral.testing.bench_storage import open_storage

C = TypeVar("C")
DEADLINE: Final = 10.0


class ModuleBench:
    """`capabilities` are those that others provide to the module; `manifest` is the path of its
    `module.yaml`, or its content, without the keys that are not needed here. `config` is completed with the
    defaults of its schema. Failures of the module are `corral.sdk.HostError`s whose `code` is the
    exception's name and whose note is its traceback."""

    def __init__(
        self,
        module: type,
        *,
        manifest: Mapping[str, Any] | Path | str | None = None,
        config: Mapping[str, Any] | None = None,
        host: str = "controller",
        capabilities: Iterable[CapabilityBinding[Any]] = (),
        previous_version: str = "",
        artifact_path: Path | str = ".",
    ) -> None:
        self._class = module
        self._written = written_manifest(manifest)
        self.manifest = msgspec.convert(self._written, Manifest)
        self._config = check_settings(self.manifest.config, dict(config or {}))
        self._host_kind = host
        self._previous_version = previous_version
        self._artifact_path = str(artifact_path)
        self.clock = BenchClock()
        self._host = BenchHost(self.manifest, self.clock, capabilities)
        self.registrations = m.Registrations()
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._attach(stack)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def _attach(self, stack: contextlib.AsyncExitStack) -> None:
        if self._storages():
            self._host.storage = await stack.enter_async_context(
                open_storage(self.manifest, clock=self.clock)
            )
        if self._host_kind == "daemon":
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="corral-bench-"))
            self._host.node = BenchNode(Path(directory), self.manifest, self.hook, self.clock)
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        stack.callback(theirs.close)
        self._workers = Workers("bench/worker")
        stack.callback(self._workers.close)
        self._known_threads = set(threading.enumerate())
        self._server = ModuleServer(workers=self._workers, load=lambda _: self._class, finish=self.lingering)
        self._module = Connection(theirs, serve=self._server.serve, on_notice=self._server.on_notice)
        stack.push_async_callback(self._module.close)
        self._server.link = self._module
        self._link = Connection(ours, serve=self._host.serve, on_notice=self._host.on_notice, limited=False)
        stack.push_async_callback(self._link.close)
        logger = logging.getLogger(f"module:{self.manifest.id}")
        bridge = LogBridge(self._module.offer_notice)
        logger.addHandler(bridge)
        stack.callback(logger.removeHandler, bridge)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.DEBUG)
        self._known_tasks = asyncio.all_tasks()
        await self._construct()

    def _storages(self) -> tuple[str, ...]:
        declared = self.manifest.storage
        named = (("documents", declared.documents), ("key_value", declared.key_value))
        return tuple(name for name, asked in named if asked and self._host_kind == "controller")

    async def _construct(self) -> None:
        body = m.Construct(
            module_id=self.manifest.id,
            version=self.manifest.version,
            host=self._host_kind,
            entrypoint=f"{self._class.__module__}:{self._class.__qualname__}",
            artifact_path=self._artifact_path,
            manifest=msgspec.Raw(msgspec.msgpack.encode(self._written)),
            config=self._config,
            previous_version=self._previous_version,
            is_upgrade=bool(self._previous_version),
            storages=self._storages(),
            capabilities=tuple(self._host.states.values()),
            node_id="bench" if self._host_kind == "daemon" else "",
        )
        await self._link.call(m.CONSTRUCT, body, m.Constructed, deadline=DEADLINE)

    # --- lifecycle ------------------------------------------------------------------------------

    @property
    def context(self) -> ModuleContext:
        assert self._server.context is not None
        return self._server.context

    @property
    def node(self) -> BenchNode:
        """With `host="daemon"`: the instances around the module."""
        assert self._host.node is not None, 'only a bench with host="daemon" has a node'
        return self._host.node

    async def hook(self, name: str, *, deadline: float = DEADLINE, **values: Any) -> Any:
        """One hook by its name; `values` are its arguments as plain data. What it answered."""
        body = m.HookArguments(values=msgspec.to_builtins(values))
        return (await self._link.call(m.HOOK_PREFIX + name, body, m.HookAnswer, deadline=deadline)).value

    async def start(self) -> None:
        """on_load, on_upgrade where there is a previous version, on_start, and what it registers."""
        await self.hook("on_load")
        if self._previous_version:
            await self.hook("on_upgrade")
        await self.hook("on_start")
        self.registrations = await self._link.call(
            m.REGISTRATIONS, m.Nothing(), m.Registrations, deadline=DEADLINE
        )

    async def stop(self) -> None:
        """on_stop and on_unload; what it registered is gone."""
        await self.hook("on_stop")
        self.registrations = m.Registrations()
        self._host.subscriptions.clear()
        self._host.tasks.clear()
        await self.hook("on_unload")

    async def reload(self, config: Mapping[str, Any]) -> None:
        await self.hook("on_reload", config=check_settings(self.manifest.config, dict(config)))

    async def health(self) -> m.HealthAnswer:
        return await self._link.call(m.HEALTH, m.Nothing(), m.HealthAnswer, deadline=DEADLINE)

    async def lingering(self) -> m.Lingering:
        """Threads, tasks and child processes that were not there before the module."""
        tasks = {*self._known_tasks, *self._module.tasks, *self._link.tasks, asyncio.current_task()}
        return look_around(workers=self._workers, ours=self._known_threads, tasks=tasks)

    # --- what it is asked -----------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        body: bytes = b"",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        caller: str = "bench",
        role: str = "ADMIN",
    ) -> BenchAnswer:
        """A request to one of its routes; LookupError when there is none."""
        route, parameters = find_route(self.registrations.routes, method, path)
        asked = m.RouteRequest(
            route=route.number,
            method=method,
            path=path,
            parameters=parameters,
            query=tuple((query or {}).items()),
            headers=tuple((headers or {}).items()),
            body=body if json is None else msgspec.json.encode(json),
            caller=m.CallerBody(name=caller, role=role),
        )
        async with self._link.stream(m.ROUTE, asked, m.RouteAnswer, deadline=DEADLINE) as (head, chunks):
            whole = b"".join([piece async for piece in chunks]) if head.streamed else head.body
        return BenchAnswer(status=head.status, headers=dict(head.headers), body=whole)

    async def command(self, line: str, *, caller: str = "bench", role: str = "ADMIN") -> tuple[str, ...]:
        """One console command as it is typed; LookupError when there is none."""
        words = tuple(line.split())
        for known in sorted(self.registrations.commands, key=lambda one: -len(one.name.split())):
            name = tuple(known.name.split())
            if words[: len(name)] == name:
                asked = m.CommandRequest(
                    command=known.number,
                    arguments=words[len(name) :],
                    caller=m.CallerBody(name=caller, role=role),
                )
                return (await self._link.call(m.COMMAND, asked, m.CommandAnswer, deadline=DEADLINE)).lines
        raise LookupError(f"no command '{line}'")

    def capability(self, id: str, contract: Callable[..., C]) -> C:
        """The capability that the module provides, as a consumer sees it."""
        state = m.CapabilityState(id=id, available=True)
        return Capabilities(ConsumerLink(self._link), (id,), (state,)).require(id, contract).call

    async def emit(self, type: str, data: object = None, *, subject: str = "") -> int:
        """An event of the cluster; returns when the module has handled it. To how many subscriptions."""
        event = m.EventBody(
            type=type,
            subject=subject,
            at=self.clock.now(),
            cursor=self._host.next_cursor(),
            data=msgspec.to_builtins(data) if data is not None else {},
        )
        matching = [
            one.subscription
            for one in self._host.subscriptions.values()
            if matches_subscription(one, type=type, subject=subject, manifest_events=self.manifest.events)
        ]
        for number in matching:
            body = m.Delivery(subscription=number, events=(event,))
            await self._link.call(m.DELIVER, body, m.Nothing, deadline=DEADLINE)
        return len(matching)

    async def tick(self, seconds: float) -> int:
        """Let time pass; tasks that are due run one after another. How many runs there were."""
        until, runs = self.clock.now() + dt.timedelta(seconds=seconds), 0
        while (due := self._host.due_by(until)) is not None:
            number, task = due
            self.clock.move_to(task.due)
            runs += 1
            if not task.ran(task.due):
                del self._host.tasks[number]
            await self._link.call(m.RUN_TASK, m.TaskRun(task=number), m.Nothing, deadline=DEADLINE)
        self.clock.move_to(until)
        return runs

    def set_available(self, id: str, available: bool, *, version: str = "1.0.0") -> None:
        """A provider appears or disappears; the module is notified before its next call."""
        state = m.CapabilityState(id=id, available=available, version=version if available else "")
        self._host.states[id] = state
        self._link.notify(m.CAPABILITY_STATES, m.CapabilityStates(states=(state,)))

    # --- what it did ----------------------------------------------------------------------------

    @property
    def published(self) -> list[m.Publish]:
        return self._host.published

    @property
    def subscriptions(self) -> list[m.Subscribe]:
        return list(self._host.subscriptions.values())

    @property
    def tasks(self) -> list[BenchTask]:
        return list(self._host.tasks.values())

    async def logs(self) -> list[m.LogLine]:
        """All that it logged until now."""
        await self.health()  # its answer comes after all earlier messages
        return list(self._host.logs)

    async def metrics(self) -> dict[str, float]:
        """Its metrics by name: counters of all labels added up, of the others the last."""
        self.context.metrics._flush()
        await self.health()
        return shown_values(self._host.samples)
