"""What nodes are told of the controller's capabilities: all of them, at first and after each change."""

from __future__ import annotations

from typing import Final

from corral.controller.sessions.node_links import ModuleLink
from corral.modules.capabilities.capability_registry import CapabilityRegistry
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.module_pb2 import CapabilityOffer, CapabilityOffers

_KEY: Final = "capabilities"


class CapabilityOffering:
    """Offers count on a node until others come, so none are made while the registry is not settled: a
    controller that starts or ends must not stop what runs on the nodes."""

    def __init__(self, registry: CapabilityRegistry) -> None:
        self._registry = registry
        self._links: dict[ModuleLink, None] = {}
        self._offers: CapabilityOffers | None = None
        registry.on_change(self._changed)

    def joined(self, link: ModuleLink) -> None:
        self._links[link] = None
        if self._registry.settled:
            self._offers = self._offers or offers_of(self._registry)
            _tell(link, self._offers)

    def left(self, link: ModuleLink) -> None:
        self._links.pop(link, None)

    def _changed(self) -> None:
        if not self._registry.settled:
            return
        offers = offers_of(self._registry)
        if offers == self._offers:
            return
        self._offers = offers
        for link in self._links:
            _tell(link, offers)


def _tell(link: ModuleLink, offers: CapabilityOffers) -> None:
    link.outbox.replace(_KEY, ControllerMessage(capability_offers=offers))


def offers_of(registry: CapabilityRegistry) -> CapabilityOffers:
    """By id; what is being upgraded is still offered."""
    return CapabilityOffers(
        offers=[
            CapabilityOffer(
                capability_id=view.id,
                version=view.version,
                provider=view.provider,
                deprecated=view.deprecated,
            )
            for view in registry.all()
        ]
    )
