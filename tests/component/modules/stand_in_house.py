"""Module processes that live in the test's own: the second adapter of the engine's process port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from corral.errors import CorralError
from corral.modules.process.call_failures import CallOverrun, ModuleBusy, ModuleRaised, ProcessGone
from corral.modules.process.process_values import Death, FinishResult, Limits, Notice, Sample, Serve
from corral.sdk.protocol.messages import (
    CALL_CAPABILITY,
    CAPABILITY,
    CAPABILITY_STATES,
    CONSTRUCT,
    HEALTH,
    HOOK_PREFIX,
    REGISTRATIONS,
    BindingDeclaration,
    CapabilityAnswer,
    CapabilityRequest,
    CapabilityState,
    CapabilityStates,
    Construct,
    Constructed,
    HealthAnswer,
    HookAnswer,
    MethodDeclaration,
    Nothing,
    Registrations,
)

Doing = Callable[["StandInProcess", dict[str, Any]], Awaitable[object]]

LIFECYCLE = ("on_load", "on_start", "on_stop", "on_unload", "on_upgrade")


class Script:
    """What a module does. `does["on_start"] = ...` replaces a hook; by default each is there and does
    nothing. `registers` gives the registrations; by default a binding for each provision."""

    def __init__(self, *, hooks: Sequence[str] = LIFECYCLE) -> None:
        self.hooks = list(hooks)
        self.does: dict[str, Doing] = {}
        self.registers: Registrations | None = None
        self.serves: Callable[[StandInProcess, CapabilityRequest], Awaitable[object]] | None = None


class StandInProcess:
    def __init__(self, house: StandInHouse, module_id: str, script: Script, serve: Serve) -> None:
        house.pids += 1
        self.house = house
        self.module_id = module_id
        self.pid = house.pids
        self.script = script
        self.serve = serve
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.construct: Construct | None = None
        self.states: list[tuple[CapabilityState, ...]] = []

    async def call(self, method: str, body: Any, *, answer: type[Any], deadline: float) -> Any:
        if self.death.done():
            raise ProcessGone(self.module_id, self.death.result())
        working = asyncio.ensure_future(self._answer(method, body))
        try:
            await asyncio.wait([working, self.death], timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            if self.death.done():
                raise ProcessGone(self.module_id, self.death.result())
            raise CallOverrun(self.module_id, method, deadline)
        except (ModuleRaised, ProcessGone, CallOverrun, ModuleBusy):
            raise
        except Exception as error:
            raise ModuleRaised(
                self.module_id, method, kind=type(error).__name__, message=str(error), traceback="Traceback…"
            ) from error
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
            if not working.cancelled():
                working.exception()

    async def _answer(self, method: str, body: Any) -> object:
        if method == CONSTRUCT:
            self.construct = body
            await self._do("construct", {})
            return Constructed(hooks=tuple(self.script.hooks), sdk="1.0.0")
        if method.startswith(HOOK_PREFIX):
            return HookAnswer(value=await self._do(method.removeprefix(HOOK_PREFIX), body.values))
        if method == REGISTRATIONS:
            return self.script.registers or self._default_registrations()
        if method == CAPABILITY:
            assert self.script.serves is not None
            value = await self.script.serves(self, body)
            return CapabilityAnswer(value=msgspec.Raw(msgspec.msgpack.encode(value)))
        await self._do(method, {})
        return HealthAnswer() if method == HEALTH else Nothing()

    async def _do(self, what: str, values: dict[str, Any]) -> object:
        assert self.construct is not None
        self.house.journal.append(f"{self.module_id} {self.construct.version} {what}")
        doing = self.script.does.get(what)
        return await doing(self, values) if doing else None

    def _default_registrations(self) -> Registrations:
        assert self.construct is not None
        manifest = msgspec.msgpack.decode(self.construct.manifest)
        provides = manifest.get("capabilities", {}).get("provides", ())
        return Registrations(
            bindings=tuple(
                BindingDeclaration(id=provision["id"], methods=(MethodDeclaration(name="ask"),))
                for provision in provides
            )
        )

    async def ask(
        self, capability: str, method: str = "ask", *, deadline_ms: int = 0, **arguments: Any
    ) -> Any:
        """Call a capability as the module's code would."""
        request = CapabilityRequest(
            capability=capability,
            method=method,
            arguments=msgspec.Raw(msgspec.msgpack.encode(arguments)),
            deadline_ms=deadline_ms,
        )
        answer = await self.serve(CALL_CAPABILITY, msgspec.Raw(msgspec.msgpack.encode(request)))
        assert isinstance(answer, CapabilityAnswer)
        return msgspec.msgpack.decode(answer.value)

    def stream(self, method: str, body: object, *, answer: type[Any], deadline: float) -> Any:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            yield await self.call(method, body, answer=answer, deadline=deadline), None

        return opened()

    def notify(self, method: str, body: object) -> None:
        if method == CAPABILITY_STATES:
            assert isinstance(body, CapabilityStates)
            self.states.append(body.states)

    @property
    def available(self) -> dict[str, str]:
        """The versions behind its handles, as it was told last."""
        assert self.construct is not None
        states = self.states[-1] if self.states else self.construct.capabilities
        return {state.id: state.version for state in states if state.available}

    def die(self, reason: str = "process_died:SIGSEGV") -> None:
        if not self.death.done():
            self.death.set_result(Death(reason=reason, status=11, last_words="Fatal Python error"))

    async def finish(self, *, grace: float) -> FinishResult:
        self.house.journal.append(f"{self.module_id} {self.version} finish")
        self.die("process_exited:0")
        return FinishResult(lingering=None, killed=False, death=self.death.result())

    async def kill(self) -> Death:
        if not self.death.done():
            self.house.journal.append(f"{self.module_id} {self.version} kill")
        self.die("process_died:SIGKILL")
        return self.death.result()

    @property
    def version(self) -> str:
        return self.construct.version if self.construct else ""

    def sample(self) -> Sample | None:
        return Sample(cpu_seconds=0.5, memory_bytes=4096, threads=2, processes=1, open_files=3)


class StandInHouse:
    """`scripts` by digest; `journal` tells what was called, in order."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.journal: list[str] = []
        self.started: list[StandInProcess] = []
        self.pids = 1000
        self.unborn: list[CorralError] = []
        """What the next starts end with, the last one first."""

    async def start(
        self, module_id: str, *, paths: Sequence[Path], limits: Limits, serve: Serve, on_notice: Notice
    ) -> StandInProcess:
        if self.unborn:
            raise self.unborn.pop()
        process = StandInProcess(self, module_id, self.scripts[paths[0].name], serve)
        self.started.append(process)
        return process

    def alive(self) -> list[StandInProcess]:
        return [process for process in self.started if not process.death.done()]

    def of(self, module_id: str) -> StandInProcess:
        """Its only live process."""
        (process,) = [process for process in self.alive() if process.module_id == module_id]
        return process
