"""Documents of one collection as a transaction leaves them: changed ones over the stored ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from corral.controller.state.collections import StateCollection
from corral.controller.state.ledger import Step
from corral.controller.state.mirrors import Mirror
from corral.domain.records import Record


class Overlay:
    """Changed documents of one collection; None stands for a removed one."""

    def __init__(self, mirror: Mirror[Any]) -> None:
        self.mirror = mirror
        self.changed: dict[str, Record | None] = {}

    def get(self, id: str) -> Any:
        if id in self.changed:
            return self.changed[id]
        stored = self.mirror.find(id)
        return stored.record if stored else None

    def all(self) -> dict[str, Any]:
        """Every document by its id."""
        found = {id: stored.record for id, stored in self.mirror.items()}
        found |= self.changed
        return {id: record for id, record in found.items() if record is not None}

    def steps(self) -> Iterable[Step]:
        collection: StateCollection[Any] = self.mirror.collection
        for id, record in self.changed.items():
            revision = self.mirror.revision(id)
            if record is None:
                if revision:
                    yield collection.delete(id, expect=revision)
            else:
                yield collection.put(id, record, expect=revision)
