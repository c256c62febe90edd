"""How an event lies in a row, as far as both adapters agree."""

from __future__ import annotations

from corral.domain.events import EventType
from corral.errors import Code, Rejected


def event_type(name: str) -> EventType:
    """The type of a stored event; one that only a newer Corral knows is refused, not skipped."""
    try:
        return EventType(name)
    except ValueError:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"the event log contains '{name}', which this Corral does not know",
            hint="run the version of Corral that wrote it, or a newer one",
        ) from None
