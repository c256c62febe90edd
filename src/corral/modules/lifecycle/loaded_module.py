"""One loaded version of a module: its process and hooks. Records are stored by `module_lifecycle`.

An upgrade works on a new generation of the module's collections; the previous generation stays untouched.
"""

from __future__ import annotations

from collections.abc import Callable

from corral.domain.modules.lifecycle_decisions import Runs
from corral.domain.modules.manifest import Manifest
from corral.domain.modules.records import CAPABILITY_CONFLICT, PackageRecord
from corral.errors import CorralError
from corral.modules.lifecycle.engine_deps import EngineDeps
from corral.modules.lifecycle.loader import end_process, run_hook, unload
from corral.modules.lifecycle.module_failure import ModuleFailure, hook_failure
from corral.modules.process.call_failures import ProcessGone
from corral.modules.process.circuit_breaker import CallCounts
from corral.modules.scope import Scope
from corral.modules.services.registrations import RegistrationRefused, check_registrations
from corral.sdk.protocol.messages import (
    CAPABILITY_STATES,
    REGISTRATIONS,
    CapabilityStates,
    Nothing,
    Registrations,
)


class LoadedModule:
    """Starts without a process. A module without a class for this host never gets one: every act then returns
    at once. `died` is called when the process ends by itself, `breaker_opened` with what overran."""

    def __init__(
        self,
        deps: EngineDeps,
        *,
        counts: CallCounts,
        died: Callable[[], None],
        breaker_opened: Callable[[LoadedModule, str], None],
    ) -> None:
        self._deps = deps
        self._counts = counts
        self._died = died
        self._breaker_opened = breaker_opened
        self._registered = Registrations()
        self.scope: Scope | None = None
        self.sha256 = ""
        """Digest of the archive that runs."""
        self.state = Runs.NOTHING

    async def construct(self, record: PackageRecord) -> None:
        """Start the process, import and construct: no hook is called, nothing else is touched."""
        if self.scope is not None or not self._deps.hosts(record.manifest):
            return
        self.scope = await self._deps.loader.load(
            record, counts=self._counts, breaker_opened=lambda _, what: self._breaker_opened(self, what)
        )
        self.sha256 = record.sha256
        self.scope.process.death.add_done_callback(lambda _: self._died())
        self.send_states(self.scope.manifest)

    async def load(self, record: PackageRecord) -> None:
        """`on_load`, once for each process; for an upgrade, after its collections were copied."""
        await self.construct(record)
        if self.scope is None or self.state is not Runs.NOTHING:
            return
        await prepare_generation(self._deps, self.scope, record)
        await run_hook(self.scope, "on_load")
        self.state = Runs.LOADED

    async def start(self, record: PackageRecord) -> None:
        """`on_upgrade` where it is one, `on_start`, and the check of its registrations; `ModuleFailure`. Its
        capabilities are claimed before, so that of two providers the later one fails here."""
        if self.scope is None or self.state is not Runs.LOADED:
            return
        rival = self._deps.capabilities.rival(record.manifest)
        if rival:
            raise ModuleFailure(f"{CAPABILITY_CONFLICT}:{rival}", "another active module provides it")
        self._deps.capabilities.claim(record.manifest)
        self.scope.begin_start()
        if record.upgraded_from:
            await run_hook(self.scope, "on_upgrade")
        await run_hook(self.scope, "on_start")
        self._registered = await self._ask_registrations(self.scope)
        self.state = Runs.STARTED

    async def _ask_registrations(self, scope: Scope) -> Registrations:
        try:
            given = await scope.call(
                "registrations",
                REGISTRATIONS,
                Nothing(),
                answer=Registrations,
                deadline=scope.hook_deadline,
                blame=False,
            )
            taken = self._deps.commands.taken(besides=scope.module_id)
            check_registrations(scope.manifest, given, host=self._deps.host, taken_commands=taken)
        except (CorralError, RegistrationRefused) as error:
            raise hook_failure(error, "registrations") from error
        return given

    def bind(self) -> None:
        """Bind handles, routes and commands together; events and tasks are delivered from now on."""
        scope, given = self.scope, self._registered
        if scope is None or self.state is not Runs.STARTED:
            return
        deps = self._deps
        clear = deps.capabilities.bind(scope, given.bindings)
        for binding in given.bindings:
            scope.own("capability", binding.id, clear)
        drop = deps.routes.put(scope, given.routes)
        for route in given.routes:
            scope.own("route", f"{route.method} {route.path}", drop)
        withdraw = deps.commands.put(scope, given.commands)
        for command in given.commands:
            scope.own("command", command.name, withdraw)
        self.state = Runs.BOUND
        scope.serve(ask_health_every=deps.config.health_check_seconds)
        deps.on_serving(scope)

    def rest(self) -> None:
        """Stop the delivery of events and tasks."""
        if self.scope is not None:
            self.scope.rest()

    async def stop(self) -> None:
        """`on_stop`, if it was started and is alive; `ModuleFailure`. A process that dies in it is no failure
        of the hook: see `dead`."""
        scope = self.scope
        if scope is None or self.state not in (Runs.STARTED, Runs.BOUND) or self.dead:
            return
        scope.rest()
        try:
            await run_hook(scope, "on_stop")
        except ModuleFailure as failure:
            if not isinstance(failure.__cause__, ProcessGone):
                raise
            await scope.process.kill()

    @property
    def dead(self) -> bool:
        """Has its process ended by itself, and was that not handled yet?"""
        return self.scope is not None and self.scope.process.death.done()

    async def clear_start(self) -> None:
        """Remove what the start registered; the process stays loaded."""
        if self.scope is None or self.state is Runs.NOTHING:
            return
        self.state = Runs.LOADED
        self._deps.routes.drop(self.scope)
        await self.scope.end_start()

    async def discard(self) -> None:
        """Kill the process and undo its registrations, without calling a hook."""
        scope, self.scope, self.state = self.scope, None, Runs.NOTHING
        if scope is not None:
            await end_process(scope)

    async def unload(self) -> None:
        """`on_unload` if it was loaded, then the end of its process; never fails. When this is cut short, the
        process is killed."""
        scope, loaded = self.scope, self.state is not Runs.NOTHING
        try:
            if scope is not None and loaded:
                await unload(scope, grace=self._deps.config.leak_grace_seconds)
        finally:
            await self.discard()

    def send_states(self, manifest: Manifest) -> None:
        """Send the states of the capabilities that it requires, for its handles."""
        if self.scope is not None and manifest.capabilities.requires:
            states = CapabilityStates(states=self._deps.capabilities.states(manifest))
            self.scope.process.notify(CAPABILITY_STATES, states)


async def prepare_generation(deps: EngineDeps, scope: Scope, record: PackageRecord) -> None:
    """Before the first hook of an archive that replaced another, also one of the same version: copy the
    collections where `on_upgrade` or a first start may change them. The scope works on the copy from then on."""
    stored = record.manifest.storage
    if deps.data is None or not record.previous_version or "on_upgrade" not in scope.hooks:
        return
    if not (stored.documents or stored.key_value):
        return
    target = record.generation + 1
    try:
        await deps.data.drop(record.id, target)  # left by an attempt that was cut short
        await deps.data.copy(record.id, record.generation, target)
    except CorralError as error:
        raise ModuleFailure("upgrade_copy_failed", str(error)) from error
    scope.generation = target


def drop_generation(deps: EngineDeps, module_id: str, generation: int) -> None:
    """Drop a generation in the background; what is left when that fails is removed at the next boot."""
    data = deps.data
    if data is not None:
        deps.later(data.drop(module_id, generation), f"modules/drop/{module_id}/{generation}")
