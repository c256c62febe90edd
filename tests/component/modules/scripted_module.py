"""A module that is played by the test: a real scope, with a process that answers what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from corral.domain.modules.manifest import Backends, EventsPart, HostBackend, Manifest, ModuleHost
from corral.modules.process.call_failures import CallOverrun
from corral.modules.process.circuit_breaker import Breaker, CallCounts
from corral.modules.process.process_values import Death
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import Nothing
from corral.system.clock import Clock, SystemClock

Answering = Callable[[str, Any], Awaitable[object]]


class ScriptedProcess:
    """The second adapter of `RunningModule` for what only calls."""

    def __init__(self, module_id: str) -> None:
        self.module_id = module_id
        self.pid = 0
        self.calls: list[tuple[str, Any]] = []
        self.answering: Answering | None = None
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()

    async def call(self, method: str, body: Any, *, answer: type[Any], deadline: float) -> Any:
        self.calls.append((method, body))
        if self.answering is None:
            return Nothing()
        try:
            async with asyncio.timeout(deadline):
                return await self.answering(method, body)
        except TimeoutError:
            raise CallOverrun(self.module_id, method, deadline) from None


def manifest(module_id: str = "played", *, events: EventsPart | None = None, hook_ms: int = 2000) -> Manifest:
    return Manifest(
        manifest_version=1,
        id=module_id,
        version="1.0.0",
        backend=Backends(controller=HostBackend(entrypoint="played:Played", hook_deadline_ms=hook_ms)),
        events=events or EventsPart(),
    )


def played_scope(
    module_id: str = "played", *, clock: Clock | None = None, serving: bool = True, **of_manifest: Any
) -> tuple[Scope, ScriptedProcess]:
    scope = Scope(
        module_id=module_id,
        version="1.0.0",
        manifest=manifest(module_id, **of_manifest),
        host=ModuleHost.CONTROLLER,
        generation=1,
        config={},
        clock=clock or SystemClock(),
        breaker=Breaker(lambda what: None),
        counts=CallCounts(),
    )
    process = ScriptedProcess(module_id)
    scope.attach(process)  # type: ignore[arg-type]  # it only calls
    if serving:
        scope.serve()
    return scope, process
