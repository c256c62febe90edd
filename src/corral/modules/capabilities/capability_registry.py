"""Registry of capabilities of one host: the provider of each, and the routing of calls to it.

An id has at most one provider. While a provider is being upgraded its entry is *held*: its consumers keep
their handles and get no state change, and calls wait for the successor as long as their deadline allows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from corral.domain.events import Draft, EventType
from corral.domain.modules.capability_graph import (
    Provided,
    UnresolvedRequirement,
    provisions_on,
    registry_of,
    unmet,
    unresolved,
)
from corral.domain.modules.manifest import Manifest, ModuleHost, Provision, Requirement
from corral.modules.capabilities.capability_calls import (
    BuiltInMethod,
    Consumer,
    call_built_in,
    call_module,
    seconds_of,
    unavailable,
)
from corral.modules.capabilities.capability_entries import (
    HOST,
    CapabilityEntry,
    CapabilityView,
    UnresolvedView,
    capability_event,
    note_deprecation,
    unregistered,
)
from corral.modules.capabilities.remote_capabilities import RemoteCapabilities, RemoteLookup
from corral.modules.process.call_failures import ModuleBusy
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import (
    BindingDeclaration,
    CapabilityAnswer,
    CapabilityRequest,
    CapabilityState,
)
from corral.system.clock import Clock

MOST_UNDER_WAY: Final = 64
"""Most concurrent calls of one capability: it ends circles of modules that call each other, long before one
of them reaches its limit of unanswered calls."""
HELD_WAIT: Final = 10.0
"""Seconds that a call waits for a provider that is being upgraded, when the caller gives no deadline."""


class CapabilityRegistry:
    """Only the engine binds, holds and clears; all others look up and call. `changed` is called with the ids
    whose state has changed."""

    def __init__(
        self,
        host: ModuleHost,
        changed: Callable[[set[str]], None],
        *,
        clock: Clock,
        remote: RemoteCapabilities | None = None,
    ) -> None:
        self._host = host
        self._notify_engine = changed
        self._listeners: list[Callable[[], None]] = []
        self.settled = False
        """Is the registry complete? Not before all modules were brought up, nor once they end."""
        self._clock = clock
        self._entries: dict[str, CapabilityEntry] = {}
        self._claims: dict[str, str] = {}
        self._consumers: dict[str, Manifest] = {}
        self._remote = RemoteLookup(remote, self._changed)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, also of `settled`; it must not raise. It cannot be removed."""
        self._listeners.append(listener)

    def settle(self, settled: bool) -> None:
        """For the engine: all modules were brought up once, or are about to end with their host."""
        self.settled = settled
        self._changed(set())

    def _changed(self, ids: set[str]) -> None:
        if ids:
            self._notify_engine(ids)
        for listener in self._listeners:
            listener()

    # --- providers ------------------------------------------------------------------------------
    def provide_builtin(self, id: str, version: str, methods: Mapping[str, BuiltInMethod]) -> None:
        """Add a built-in capability; never removed."""
        entry = CapabilityEntry(Provision(id=id, version=version), HOST)
        entry.built_in = dict(methods)
        self._entries[id] = entry
        self._changed({id})

    def built_in(self) -> set[str]:
        return {id for id, entry in self._entries.items() if entry.built_in is not None}

    def _provisions(self, manifest: Manifest) -> tuple[Provision, ...]:
        return provisions_on(manifest, self._host)

    def rival(self, manifest: Manifest) -> str:
        """The first id the module provides that another module holds or has claimed; "" when there is
        none."""
        for provision in self._provisions(manifest):
            entry = self._entries.get(provision.id)
            owner = entry.provider if entry else self._claims.get(provision.id, manifest.id)
            if owner != manifest.id:
                return provision.id
        return ""

    def claim(self, manifest: Manifest) -> None:
        """Reserve what the module provides; call `rival` first, without a pause between."""
        kept = {id: owner for id, owner in self._claims.items() if owner != manifest.id}
        own = {provision.id: manifest.id for provision in self._provisions(manifest)}
        self._claims = kept | own

    def binding_events(self, manifest: Manifest, *, reason: str = "") -> list[Draft]:
        """Events for `bind`; `reason` is why capabilities it provided before are gone."""
        new = {provision.id: provision for provision in self._provisions(manifest)}
        gone = [entry for id, entry in self._of(manifest.id) if id not in new]
        swapped = {id for id, _ in self._of(manifest.id)}
        return [unregistered(entry, manifest.id, reason) for entry in gone] + [
            capability_event(
                EventType.CAPABILITY_REBOUND if id in swapped else EventType.CAPABILITY_REGISTERED,
                provision,
                manifest.id,
            )
            for id, provision in new.items()
        ]

    def bind(self, scope: Scope, bindings: Sequence[BindingDeclaration]) -> Callable[[], None]:
        """Bind the module's handles in place of its former ones; returns how to clear them again."""
        provisions = {provision.id: provision for provision in self._provisions(scope.manifest)}
        before = dict(self._of(scope.module_id))
        for id in before.keys() - provisions.keys():
            self._remove(id)
        for binding in bindings:
            entry = CapabilityEntry(provisions[binding.id], scope.module_id)
            entry.scope = scope
            entry.methods = frozenset(method.name for method in binding.methods)
            self._succeed(entry, before.get(binding.id))
        self._changed(before.keys() | provisions.keys())
        return lambda: self.clear(scope)

    def _succeed(self, entry: CapabilityEntry, old: CapabilityEntry | None) -> None:
        self._entries[entry.provision.id] = entry
        if old is not None:
            entry.calls, entry.failures = old.calls, old.failures
            entry.deprecated_calls = old.deprecated_calls
            old.moved.set()

    def hold(self, scope: Scope) -> None:
        """Hold the entries of a provider that is being upgraded; consumers get no state change."""
        for _, entry in self._of(scope.module_id):
            if entry.scope is scope:
                entry.scope = None

    def clearing_events(self, module_id: str, *, reason: str) -> list[Draft]:
        """Events for `release`."""
        return [unregistered(entry, module_id, reason) for _, entry in self._of(module_id)]

    def clear(self, scope: Scope) -> None:
        """Remove what this scope provides; entries that are held, or another scope's, stay."""
        gone = {id for id, entry in self._of(scope.module_id) if entry.scope is scope}
        for id in gone:
            self._remove(id)
        if gone:
            self._changed(gone)

    def release(self, module_id: str) -> None:
        """Remove all that the module provides, held or not, and its claims."""
        gone = {id for id, _ in self._of(module_id)}
        for id in gone:
            self._remove(id)
        self._claims = {id: owner for id, owner in self._claims.items() if owner != module_id}
        if gone:
            self._changed(gone)

    def _remove(self, id: str) -> None:
        self._entries.pop(id).moved.set()

    def _of(self, module_id: str) -> list[tuple[str, CapabilityEntry]]:
        return [(id, entry) for id, entry in self._entries.items() if entry.provider == module_id]

    # --- consumers ------------------------------------------------------------------------------
    def provided(self) -> dict[str, Provided]:
        return {id: entry.offer for id, entry in self._entries.items()}

    def missing(self, manifest: Manifest) -> tuple[str, ...]:
        """Ids of the unmet requirements that keep the module from starting, or from running."""
        return tuple(found.id for found in self._unresolved(manifest))

    def _unresolved(self, manifest: Manifest, *, with_optional: bool = False) -> list[UnresolvedRequirement]:
        own, others = self.provided(), self._remote.offers()
        return unresolved(manifest, own, host=self._host, from_controller=others, with_optional=with_optional)

    def states(self, manifest: Manifest) -> tuple[CapabilityState, ...]:
        """States of all requirements of a module, for its handles."""
        return tuple(self._state(requirement) for requirement in manifest.capabilities.requires)

    def _state(self, requirement: Requirement) -> CapabilityState:
        if self._is_remote(requirement):
            return self._remote.state(requirement)
        entry = self._entries.get(requirement.id)
        if entry is None or unmet(requirement, entry.offer):
            return CapabilityState(id=requirement.id, available=False)
        return CapabilityState(
            id=requirement.id,
            available=True,
            version=entry.provision.version,
            provider=entry.provider,
            deprecated=bool(entry.provision.deprecated_since),
        )

    def _is_remote(self, requirement: Requirement) -> bool:
        return registry_of(requirement, self._host) is not self._host

    def watch(self, manifest: Manifest) -> None:
        """List the module, which is loaded or shall be, among consumers and the unresolved."""
        self._consumers[manifest.id] = manifest

    def unwatch(self, module_id: str) -> None:
        self._consumers.pop(module_id, None)

    def all(self) -> list[CapabilityView]:
        """Capabilities provided here, then those another host offers to this one."""
        here: dict[str, list[str]] = {}
        remote: dict[str, list[str]] = {}
        for id, manifest in self._consumers.items():
            for requirement in manifest.capabilities.requires:
                needed = remote if self._is_remote(requirement) else here
                needed.setdefault(requirement.id, []).append(id)
        own = [entry.view(here.get(id, ())) for id, entry in sorted(self._entries.items())]
        return own + self._remote.views(remote)

    def unresolved(self) -> list[UnresolvedView]:
        return [
            UnresolvedView(
                module=id, id=found.id, why=found.why, reason=found.reason, optional=found.optional
            )
            for id, manifest in sorted(self._consumers.items())
            for found in self._unresolved(manifest, with_optional=True)
        ]

    # --- calls ----------------------------------------------------------------------------------
    async def call(self, consumer: Consumer | None, request: CapabilityRequest) -> CapabilityAnswer:
        """Route one call. CAPABILITY_UNAVAILABLE without a provider, CAPABILITY_TYPE for what is not in the
        contract, MODULE_BUSY when too many are under way, MODULE_TIMEOUT at the deadline, MODULE_FAILED with
        the provider's exception."""
        required = self._required(consumer, request.capability)
        if required is not None and self._is_remote(required):
            return await self._remote.call(consumer, required, request)
        began = self._clock.monotonic()
        entry = await self._provider(required, request)
        entry.calls += 1
        note_deprecation(entry, consumer)
        entry.under_way += 1
        try:
            if entry.under_way > MOST_UNDER_WAY:
                raise ModuleBusy(entry.provider)
            if entry.built_in is not None:
                return await call_built_in(entry.built_in, consumer, request)
            if entry.scope is None:
                raise unavailable(request.capability, "its provider is being replaced")
            waited = self._clock.monotonic() - began
            return await call_module(entry.scope, entry.methods, request, waited=waited)
        except BaseException:
            entry.failures += 1
            raise
        finally:
            entry.under_way -= 1

    def _required(self, consumer: Consumer | None, id: str) -> Requirement | None:
        """The module's declared requirement; None for the host itself."""
        if consumer is None:
            return None
        for required in consumer.manifest.capabilities.requires:
            if required.id == id:
                return required
        raise unavailable(id, "the module does not declare it under capabilities.requires")

    async def _provider(self, required: Requirement | None, request: CapabilityRequest) -> CapabilityEntry:
        """The present provider; waits while the entry is held."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_of(request.deadline_ms, default=HELD_WAIT)):
                while True:
                    entry = self._offered(required, request.capability)
                    if entry.scope is not None or entry.built_in is not None:
                        return entry
                    await entry.moved.wait()
        raise unavailable(request.capability, "its provider is being replaced")

    def _offered(self, required: Requirement | None, id: str) -> CapabilityEntry:
        entry = self._entries.get(id)
        found = unmet(required, entry.offer if entry else None) if required is not None else None
        if found:
            raise unavailable(id, found.reason)
        if entry is None:
            raise unavailable(id, "no active module provides it")
        return entry
