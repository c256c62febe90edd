"""Names of events as modules write them: types of the log, and `ID/TYPE` for what modules tell themselves."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from corral.domain.events import Event, EventType
from corral.domain.module_manifest import EventsPart
from corral.errors import Code, Rejected, unknown_choice

EVENTS_MISSED: Final = "EVENTS_MISSED"
"""Not an event of the log: it says that some were lost to this subscription, and between which two."""
MAX_TYPES: Final = 200
MAX_SUBJECTS: Final = 1000
MAX_NODE_TYPES: Final = 500
"""That the modules of one node want together."""
_SUBJECT_MAX: Final = 300
_OWN: Final = re.compile(r"[a-z][a-z0-9-]{0,62}/[A-Za-z][A-Za-z0-9_.-]{0,99}")
_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription lets through; empty lets everything through."""

    types: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()

    @property
    def log_types(self) -> frozenset[EventType] | None:
        """The types of the log it can want anything of."""
        if not self.types:
            return None
        plain = {EventType(name) for name in self.types if name in EventType.__members__}
        return frozenset(plain | ({EventType.MODULE_EVENT} if any("/" in t for t in self.types) else set()))

    def accepts(self, event: Event) -> bool:
        """A module's event is wanted by its own name, or as `MODULE_EVENT` with all others."""
        if self.types and event.type.value not in self.types and name_of(event) not in self.types:
            return False
        return not self.subjects or subject_of(event) in self.subjects


def name_of(event: Event) -> str:
    """What a module calls it: `ID/TYPE` for what a module told."""
    return event.subject if event.type is EventType.MODULE_EVENT else event.type.value


def subject_of(event: Event) -> str:
    if event.type is EventType.MODULE_EVENT:
        return str(event.data.get("subject", ""))
    return event.subject


def wanted_filter(types: Collection[str], subjects: Collection[str], allowed: EventsPart) -> EventFilter:
    """The filter asked for. UNKNOWN_EVENT_TYPE for a name that is none, FORBIDDEN for one that the
    manifest does not list, where it lists any."""
    if len(types) > MAX_TYPES or len(subjects) > MAX_SUBJECTS or any(len(s) > _SUBJECT_MAX for s in subjects):
        raise Rejected(
            Code.INVALID_FIELD,
            f"a subscription names at most {MAX_TYPES} types and {MAX_SUBJECTS} subjects",
            hint="leave the filter away and choose in the handler",
        )
    for name in types:
        check_name(name)
    listed = frozenset(allowed.subscribes)
    if not listed:
        return EventFilter(types=frozenset(types), subjects=frozenset(subjects))
    for name in types:
        if name not in listed:
            raise Rejected(
                Code.FORBIDDEN,
                f"the manifest does not list '{name}' among events.subscribes",
                hint="add it there; it lists: " + ", ".join(sorted(listed)),
                field="types",
            )
    return EventFilter(types=frozenset(types) or listed, subjects=frozenset(subjects))


def is_event_name(name: str) -> bool:
    """Whether there could be events of this name: a type of the log, or one that a module may tell."""
    return name in EventType.__members__ or bool(_OWN.fullmatch(name))


def check_name(name: str) -> None:
    if not is_event_name(name):
        raise unknown_choice(
            "event type", name[:80], EventType.__members__, code=Code.UNKNOWN_EVENT_TYPE, field="types"
        )


def check_published(name: str, allowed: EventsPart) -> None:
    """UNKNOWN_EVENT_TYPE unless the manifest says that the module tells this."""
    if name in allowed.publishes and _TYPE.fullmatch(name):
        return
    if not allowed.publishes:
        raise Rejected(
            Code.UNKNOWN_EVENT_TYPE,
            f"this module may publish nothing, and so not '{name[:80]}'",
            hint="list the type in the manifest, under events.publishes",
            field="type",
        )
    raise unknown_choice(
        "event type", name[:80], allowed.publishes, code=Code.UNKNOWN_EVENT_TYPE, field="type"
    )
