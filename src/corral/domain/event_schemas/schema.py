"""The schema of an event type: its meaning, and a struct with the type, the meaning and an example of each field of `data`.

Who sees a field is in `corral.domain.field_classes.event_data`, by the same names.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, UnsetType


class EventData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of events. A field with the default UNSET is left out where it says nothing."""


class EventSchema(msgspec.Struct, frozen=True):
    """When an event of a type is published, and the form of its data."""

    meaning: str
    data: type[EventData]


def said(meaning: str, example: Any) -> Meta:
    """The meaning of a field, and an example of its value."""
    return Meta(description=meaning, examples=[example])


class NoData(EventData, frozen=True, kw_only=True):
    """Events whose type and subject say everything."""


Reason = Annotated[str, said("Why, as a sentence for people; empty: there is none.", "asked for by anna")]
Decision = Annotated[str, said("Id of the decision behind it; empty: there is none.", "dec-01JD4ZK7")]
Group = Annotated[str, said("Name of the group.", "lobby")]
Node = Annotated[str, said("Id of the node.", "web-1")]
Incarnation = Annotated[int, said("Number of the run.", 1031)]
By = Annotated[str, said("Who did it.", "user:anna")]
Version = Annotated[str, said("Version of the module.", "1.2.0")]
At = Annotated[str, said("When it happened, in UTC.", "2026-01-01T12:00:00+00:00")]

OptionalReason = Reason | UnsetType
OptionalDecision = Decision | UnsetType
OptionalBy = By | UnsetType
