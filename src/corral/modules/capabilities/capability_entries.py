"""Entries of the capability registry, by capability id, and how they are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import structlog

from corral.domain.events import Draft, EventType
from corral.domain.modules.capability_graph import Provided, UnresolvedReason
from corral.domain.modules.manifest import Provision
from corral.modules.capabilities.capability_calls import BuiltInMethod, Consumer
from corral.modules.scope import Scope

HOST: Final = "corral"
"""Provider name of built-in capabilities."""
_log = structlog.get_logger("corral.modules.capabilities")


class CapabilityView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version: str
    provider: str
    consumers: tuple[str, ...] = ()
    deprecated: bool = False
    calls: int = 0
    failures: int = 0
    deprecated_calls: int = 0
    remote: bool = False
    """Offered by another host."""


class UnresolvedView(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement of a module that is not met at present."""

    module: str
    id: str
    why: UnresolvedReason
    reason: str
    optional: bool


class CapabilityEntry:
    """Entry of one id. `scope` is None for a built-in capability, and while the entry is held."""

    def __init__(self, provision: Provision, provider: str) -> None:
        self.provision = provision
        self.provider = provider
        self.scope: Scope | None = None
        self.methods: frozenset[str] = frozenset()
        self.built_in: Mapping[str, BuiltInMethod] | None = None
        self.moved = asyncio.Event()
        self.under_way = 0
        self.calls = 0
        self.failures = 0
        self.deprecated_calls = 0
        self.warned: set[str] = set()

    @property
    def offer(self) -> Provided:
        return Provided(self.provision.version, self.provider)

    def view(self, consumers: Iterable[str], *, remote: bool = False) -> CapabilityView:
        return CapabilityView(
            id=self.provision.id,
            version=self.provision.version,
            provider=self.provider,
            consumers=tuple(sorted(consumers)),
            deprecated=bool(self.provision.deprecated_since),
            calls=self.calls,
            failures=self.failures,
            deprecated_calls=self.deprecated_calls,
            remote=remote,
        )


def note_deprecation(entry: CapabilityEntry, consumer: Consumer | None) -> None:
    """Count a call of a deprecated capability, and warn once per consumer."""
    if not entry.provision.deprecated_since:
        return
    entry.deprecated_calls += 1
    name = consumer.name if consumer else HOST
    if name not in entry.warned:
        entry.warned.add(name)
        _log.warning(
            "deprecated_capability.used",
            capability=entry.provision.id,
            provider=entry.provider,
            consumer=name,
            since=entry.provision.deprecated_since,
            removed_in=entry.provision.removed_in,
        )


def capability_event(kind: EventType, provision: Provision, provider: str, **more: str) -> Draft:
    """The event of a change of a capability."""
    return Draft(
        type=kind,
        subject=provision.id,
        data={"id": provision.id, "version": provision.version, "provider": provider, **more},
    )


def unregistered(entry: CapabilityEntry, provider: str, reason: str) -> Draft:
    return capability_event(EventType.CAPABILITY_CLEARED, entry.provision, provider, reason=reason)
