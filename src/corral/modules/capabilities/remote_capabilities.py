"""Capabilities of another host: on a node, those of the controller (`from: controller`).

The registry looks them up here, and counts calls and deprecation warnings as for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from corral.domain.modules.capability_graph import Provided, unmet
from corral.domain.modules.manifest import Provision, Requirement
from corral.modules.capabilities.capability_calls import Consumer, unavailable
from corral.modules.capabilities.capability_entries import CapabilityEntry, CapabilityView, note_deprecation
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest, CapabilityState


class RemoteCapabilities(Protocol):
    """Offers of another host, and calls to it. Offers outlive the connection: a module that needs one goes on
    while the other host is disconnected, and only its calls fail."""

    def offers(self) -> Mapping[str, Provided]:
        """The last offers received, by id."""

    def deprecated(self, id: str) -> bool: ...

    @property
    def reachable(self) -> bool:
        """Is the other host connected?"""

    def on_change(self, changed: Callable[[set[str]], None]) -> None:
        """Call `changed` with the ids whose state has changed, also when the other host disconnects or
        reconnects (then all of them). For the registry, once."""

    async def call(self, consumer: Scope, request: CapabilityRequest) -> CapabilityAnswer:
        """CAPABILITY_UNAVAILABLE while the other host is disconnected or does not offer it, MODULE_TIMEOUT at
        the deadline; else what the registry there raises."""


class RemoteLookup:
    """Lookup in the offers of `remote`; empty when there is none. An offer stays valid while the other host
    is disconnected, so that no module is stopped by that: only its calls fail."""

    def __init__(self, remote: RemoteCapabilities | None, changed: Callable[[set[str]], None]) -> None:
        self._remote = remote
        self._entries: dict[str, CapabilityEntry] = {}
        if remote is not None:
            remote.on_change(changed)

    def offers(self) -> Mapping[str, Provided]:
        return {} if self._remote is None else self._remote.offers()

    def state(self, requirement: Requirement) -> CapabilityState:
        """State for a handle: not available while the other host is disconnected."""
        offer = self.offers().get(requirement.id)
        met = offer is not None and unmet(requirement, offer) is None
        if self._remote is None or offer is None or not met or not self._remote.reachable:
            return CapabilityState(id=requirement.id, available=False)
        return CapabilityState(
            id=requirement.id,
            available=True,
            version=offer.version,
            provider=offer.provider,
            deprecated=self._remote.deprecated(requirement.id),
        )

    async def call(
        self, consumer: Consumer | None, requirement: Requirement, request: CapabilityRequest
    ) -> CapabilityAnswer:
        """Raises as `RemoteCapabilities.call` does; CAPABILITY_UNAVAILABLE for what is not offered as required,
        and for callers other than a module of this host."""
        offer = self.offers().get(requirement.id)
        missing = unmet(requirement, offer)
        if missing is not None:
            raise unavailable(requirement.id, missing.reason)
        if self._remote is None or offer is None or not isinstance(consumer, Scope):
            raise unavailable(requirement.id, "it is not handed on to others")
        entry = self._entry(requirement.id, offer)
        entry.calls += 1
        note_deprecation(entry, consumer)
        try:
            return await self._remote.call(consumer, request)
        except BaseException:
            entry.failures += 1
            raise

    def views(self, consumers: Mapping[str, Iterable[str]]) -> list[CapabilityView]:
        return [
            self._entry(id, offer).view(consumers.get(id, ()), remote=True)
            for id, offer in sorted(self.offers().items())
        ]

    def _entry(self, id: str, offer: Provided) -> CapabilityEntry:
        """The entry; its counters continue when the offer's version or provider changes."""
        since = "unknown" if self._remote is not None and self._remote.deprecated(id) else ""
        provision = Provision(id=id, version=offer.version, deprecated_since=since)
        entry = self._entries.get(id)
        if entry is None:
            entry = self._entries[id] = CapabilityEntry(provision, offer.provider)
        entry.provision, entry.provider = provision, offer.provider
        return entry
