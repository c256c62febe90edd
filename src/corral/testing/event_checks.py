"""Whether the events of a controller are as documented: each against the schema of its type."""

from __future__ import annotations

from corral.controller.app import ControllerApp
from corral.controller.events.ring import EventSelection
from corral.domain.event_schemas.catalog import data_fault
from corral.domain.events import OMITTED


def event_faults(app: ControllerApp) -> list[str]:
    """How the newest events of a controller that leads differ from their schemas."""
    term = app.role.term
    if term is None:
        return []
    ring = term.hub.ring
    events, _ = ring.events(ring.floor.sequence, EventSelection(), limit=len(ring) + 1)
    return [
        f"{event.type} '{event.subject}': {fault}"
        for event in events
        if OMITTED not in event.data and (fault := data_fault(event.type, event.data, whole=True))
    ]
