"""Who provides which capability now, and the way of each call to it. One registry a host.

An id has at most one provider. While a provider is being upgraded its place is *held*: its consumers keep
their handles and are not told anything, calls wait for the successor as long as their deadline allows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from corral.domain.events import Draft, EventType
from corral.domain.module_graph import Provided, registry_of, unmet, unresolved
from corral.domain.module_manifest import Manifest, ModuleHost, Provision, Requirement
from corral.modules.capability_calls import (
    BuiltInMethod,
    call_built_in,
    call_module,
    seconds_of,
    unavailable,
)
from corral.modules.capability_entries import HOST, CapabilityEntry, CapabilityView, UnresolvedView
from corral.modules.failures import ModuleBusy
from corral.modules.remote_capabilities import RemoteCapabilities
from corral.modules.scope import Scope
from corral.sdk.messages import BindingDeclaration, CapabilityAnswer, CapabilityRequest, CapabilityState
from corral.system.clock import Clock

MOST_UNDER_WAY: Final = 64
"""Calls of one capability at a time: modules that call each other in a circle come to an end here, long before
one of them has more unanswered calls than it may have."""
HELD_WAIT: Final = 10.0
"""How long a call waits for a provider that is being upgraded, when its caller does not say."""

_log = structlog.get_logger("corral.modules.capabilities")


class CapabilityRegistry:
    """What the engine binds, holds and clears; everybody else may look and call. `changed` is told the ids
    whose standing is not what it was."""

    def __init__(
        self,
        host: ModuleHost,
        changed: Callable[[set[str]], None],
        *,
        clock: Clock,
        remote: RemoteCapabilities | None = None,
    ) -> None:
        self._host = host
        self._remote = remote
        self._changed = changed
        self._clock = clock
        self._entries: dict[str, CapabilityEntry] = {}
        self._claims: dict[str, str] = {}
        self._consumers: dict[str, Manifest] = {}

    # --- who provides ---------------------------------------------------------------------------
    def provide_builtin(self, id: str, version: str, methods: Mapping[str, BuiltInMethod]) -> None:
        """Something of the host's own; for ever."""
        entry = CapabilityEntry(Provision(id=id, version=version), HOST)
        entry.built_in = dict(methods)
        self._entries[id] = entry
        self._changed({id})

    def built_in(self) -> set[str]:
        return {id for id, entry in self._entries.items() if entry.built_in is not None}

    def rival(self, manifest: Manifest) -> str:
        """The first id it provides that another module holds or is about to; "" when there is none."""
        for provision in manifest.capabilities.provides:
            entry = self._entries.get(provision.id)
            owner = entry.provider if entry else self._claims.get(provision.id, manifest.id)
            if owner != manifest.id:
                return provision.id
        return ""

    def claim(self, manifest: Manifest) -> None:
        """Nobody else may take what it provides from here on; ask `rival` first, without a pause between."""
        kept = {id: owner for id, owner in self._claims.items() if owner != manifest.id}
        own = {provision.id: manifest.id for provision in manifest.capabilities.provides}
        self._claims = kept | own

    def binding_told(self, manifest: Manifest, *, reason: str = "") -> list[Draft]:
        """The events that go with `bind`; `reason` is why what it provided before is gone."""
        new = {provision.id: provision for provision in manifest.capabilities.provides}
        gone = [entry for id, entry in self._of(manifest.id) if id not in new]
        swapped = {id for id, _ in self._of(manifest.id)}
        return [_unregistered(entry, manifest.id, reason) for entry in gone] + [
            _told(
                EventType.CAPABILITY_SWAPPED if id in swapped else EventType.CAPABILITY_REGISTERED,
                provision,
                manifest.id,
            )
            for id, provision in new.items()
        ]

    def bind(self, scope: Scope, bindings: Sequence[BindingDeclaration]) -> Callable[[], None]:
        """Put the module's handles in, in place of whatever it had; returns how to clear them again."""
        provisions = {provision.id: provision for provision in scope.manifest.capabilities.provides}
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
        """Keep the places of a provider that is being upgraded; nobody is told."""
        for _, entry in self._of(scope.module_id):
            if entry.scope is scope:
                entry.scope = None

    def clearing_told(self, module_id: str, *, reason: str) -> list[Draft]:
        """The events that go with `release`."""
        return [_unregistered(entry, module_id, reason) for _, entry in self._of(module_id)]

    def clear(self, scope: Scope) -> None:
        """Take away what this scope provides; what is held, or another's, stays."""
        gone = {id for id, entry in self._of(scope.module_id) if entry.scope is scope}
        for id in gone:
            self._remove(id)
        if gone:
            self._changed(gone)

    def release(self, module_id: str) -> None:
        """Take away all that the module provides, held or not, and its claims."""
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

    # --- who needs ------------------------------------------------------------------------------
    def provided(self) -> dict[str, Provided]:
        return {id: entry.offer for id, entry in self._entries.items()}

    def missing(self, manifest: Manifest) -> tuple[str, ...]:
        """Ids of the requirements that keep the module from starting, or from going on."""
        return tuple(found.id for found in unresolved(manifest, self.provided(), host=self._host))

    def states(self, manifest: Manifest) -> tuple[CapabilityState, ...]:
        """How all requirements of a module stand, for its handles."""
        return tuple(self._state(requirement) for requirement in manifest.capabilities.requires)

    def _state(self, requirement: Requirement) -> CapabilityState:
        entry = self._met_by(requirement)
        if entry is None or unmet(requirement, entry.offer):
            return CapabilityState(id=requirement.id, available=False)
        return CapabilityState(
            id=requirement.id,
            available=True,
            version=entry.provision.version,
            provider=entry.provider,
            deprecated=bool(entry.provision.deprecated_since),
        )

    def _met_by(self, requirement: Requirement) -> CapabilityEntry | None:
        """Its place in this registry; None too for what is to be looked up in another host's."""
        return (
            self._entries.get(requirement.id) if registry_of(requirement, self._host) is self._host else None
        )

    def watch(self, manifest: Manifest) -> None:
        """The module is loaded or wants to be: it is shown among consumers and the unresolved."""
        self._consumers[manifest.id] = manifest

    def unwatch(self, module_id: str) -> None:
        self._consumers.pop(module_id, None)

    def all(self) -> list[CapabilityView]:
        needed: dict[str, list[str]] = {}
        for id, manifest in self._consumers.items():
            for requirement in manifest.capabilities.requires:
                needed.setdefault(requirement.id, []).append(id)
        return [entry.view(needed.get(id, ())) for id, entry in sorted(self._entries.items())]

    def unresolved(self) -> list[UnresolvedView]:
        return [
            UnresolvedView(
                module=id, id=found.id, why=found.why, reason=found.reason, optional=found.optional
            )
            for id, manifest in sorted(self._consumers.items())
            for found in unresolved(manifest, self.provided(), host=self._host, with_optional=True)
        ]

    # --- calls ----------------------------------------------------------------------------------
    async def call(self, consumer: Scope | None, request: CapabilityRequest) -> CapabilityAnswer:
        """Route one call. CAPABILITY_UNAVAILABLE without a provider, CAPABILITY_TYPE for what the contract
        does not know, MODULE_BUSY when too many are under way, MODULE_TIMEOUT at the deadline, MODULE_FAILED
        with what the provider raised."""
        began = self._clock.monotonic()
        entry = await self._provider(consumer, request)
        entry.calls += 1
        self._mind_deprecation(entry, consumer)
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

    async def _provider(self, consumer: Scope | None, request: CapabilityRequest) -> CapabilityEntry:
        """Who serves it now; waits while the place is held."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_of(request.deadline_ms, default=HELD_WAIT)):
                while True:
                    entry = self._offered(consumer, request.capability)
                    if entry.scope is not None or entry.built_in is not None:
                        return entry
                    await entry.moved.wait()
        raise unavailable(request.capability, "its provider is being replaced")

    def _offered(self, consumer: Scope | None, id: str) -> CapabilityEntry:
        entry = self._entries.get(id)
        if consumer is not None:
            required = [one for one in consumer.manifest.capabilities.requires if one.id == id]
            if not required:
                raise unavailable(id, "the module does not declare it under capabilities.requires")
            entry = self._met_by(required[0])
            found = unmet(required[0], entry.offer if entry else None)
            if found:
                raise unavailable(id, found.reason)
        if entry is None:
            raise unavailable(id, "no active module provides it")
        return entry

    def _mind_deprecation(self, entry: CapabilityEntry, consumer: Scope | None) -> None:
        if not entry.provision.deprecated_since:
            return
        entry.deprecated_calls += 1
        name = consumer.module_id if consumer else HOST
        if name not in entry.warned:
            entry.warned.add(name)
            _log.warning(
                "capability.deprecated",
                capability=entry.provision.id,
                provider=entry.provider,
                consumer=name,
                since=entry.provision.deprecated_since,
                removed_in=entry.provision.removed_in,
            )


def _told(kind: EventType, provision: Provision, provider: str, **more: str) -> Draft:
    return Draft(
        type=kind,
        subject=provision.id,
        data={"id": provision.id, "version": provision.version, "provider": provider, **more},
    )


def _unregistered(entry: CapabilityEntry, provider: str, reason: str) -> Draft:
    return _told(EventType.CAPABILITY_UNREGISTERED, entry.provision, provider, reason=reason)
