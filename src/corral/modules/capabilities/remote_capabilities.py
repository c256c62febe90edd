"""Capabilities of another host: on a node, those of the controller (`from: controller`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from corral.domain.module_graph import Provided
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest


class RemoteCapabilities(Protocol):
    """What is offered there, and the way to it. Offers outlive the connection: a module that needs one goes on
    while the other host is away, and only its calls fail."""

    def offers(self) -> Mapping[str, Provided]:
        """As they were told last, by id."""

    def deprecated(self, id: str) -> bool: ...

    @property
    def reachable(self) -> bool:
        """Whether a call could get there now."""

    def on_change(self, changed: Callable[[set[str]], None]) -> None:
        """`changed` is told the ids whose standing is not what it was, also when the other host goes away or
        comes back (then all of them). For the registry, once."""

    async def call(self, consumer: Scope, request: CapabilityRequest) -> CapabilityAnswer:
        """CAPABILITY_UNAVAILABLE while the other host cannot be reached or offers nothing of the kind,
        MODULE_TIMEOUT at the deadline; else what the registry there raises."""
