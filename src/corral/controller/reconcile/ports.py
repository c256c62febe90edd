"""The parts of a term that the reconciler uses, as it sees them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.workspace import Workspace
from corral.domain.ids import NodeId


class RefilledNumbers(Protocol):
    async def refill(self) -> None:
        """Have numbers for the starts of a turn. Raises what a commit raises."""


class ReconciledInstances(Protocol):
    """Transactions on instances, and what plans of them depend on."""

    @property
    def signals(self) -> PlanSignals: ...

    @property
    def placing(self) -> asyncio.Lock:
        """Held from the search for a place until its commit."""

    @property
    def numbers(self) -> RefilledNumbers: ...

    def workspace(self, *, cause: str) -> Workspace:
        """A new transaction on behalf of `cause`."""


class SessionLookup(Protocol):
    def find(self, node_id: NodeId, /) -> object | None:
        """The session of a node; None: it is not connected."""
