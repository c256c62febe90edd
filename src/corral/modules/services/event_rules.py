"""Rules of module events, the same on both hosts: names, what may be published, how large and how often.

Names are types of the log, and `ID/TYPE` for events that modules publish themselves.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from corral.domain.events import Event, EventType, event_type, present_name
from corral.domain.json_limits import MAX_DEPTH, deeper_than
from corral.domain.modules.manifest import ANY_EVENT, EventsPart
from corral.errors import Code, Rejected, unknown_choice
from corral.sdk.protocol.messages import Publish
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock

EVENTS_MISSED: Final = "EVENTS_MISSED"
"""Not an event of the log: it reports that the subscription missed events, and between which two cursors."""
MAX_TYPES: Final = 200
MAX_SUBJECTS: Final = 1000
MAX_NODE_TYPES: Final = 500
"""Most types that the modules of one node subscribe to together."""
_SUBJECT_MAX: Final = 300
_OWN: Final = re.compile(r"[a-z][a-z0-9-]{0,62}/[A-Za-z][A-Za-z0-9_.-]{0,99}")
_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of a subscription; an empty one accepts everything."""

    types: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()

    @property
    def log_types(self) -> frozenset[EventType] | None:
        """Types of the log that it can accept events of."""
        if not self.types:
            return None
        plain = {type for name in self.types if (type := event_type(name)) is not None}
        return frozenset(plain | ({EventType.MODULE_EVENT} if any("/" in t for t in self.types) else set()))

    def accepts(self, event: Event) -> bool:
        """Is the event accepted? A module's event by its own name, or as `MODULE_EVENT` with all others."""
        if self.types and event.type.value not in self.types and name_of(event) not in self.types:
            return False
        return not self.subjects or subject_of(event) in self.subjects


def name_of(event: Event) -> str:
    """Name of an event for modules: `ID/TYPE` if a module published it."""
    return event.subject if event.type is EventType.MODULE_EVENT else event.type.value


def subject_of(event: Event) -> str:
    if event.type is EventType.MODULE_EVENT:
        return str(event.data.get("subject", ""))
    return event.subject


def requested_filter(types: Collection[str], subjects: Collection[str], allowed: EventsPart) -> EventFilter:
    """The requested filter. UNKNOWN_EVENT_TYPE for a name that does not exist, FORBIDDEN for one that the
    manifest does not list, where it lists any."""
    if len(types) > MAX_TYPES or len(subjects) > MAX_SUBJECTS or any(len(s) > _SUBJECT_MAX for s in subjects):
        raise Rejected(
            Code.INVALID_FIELD,
            f"a subscription names at most {MAX_TYPES} types and {MAX_SUBJECTS} subjects",
            hint="leave the filter away and choose in the handler",
        )
    for name in types:
        check_name(name)
    listed = frozenset(map(present_name, allowed.subscribes))
    wanted = frozenset(map(present_name, types))
    if not listed or ANY_EVENT in listed:
        return EventFilter(types=wanted, subjects=frozenset(subjects))
    for name in wanted:
        if name not in listed:
            raise Rejected(
                Code.FORBIDDEN,
                f"the manifest does not list '{name}' among events.subscribes",
                hint="add it there; it lists: " + ", ".join(sorted(listed)),
                field="types",
            )
    return EventFilter(types=wanted or listed, subjects=frozenset(subjects))


def is_event_name(name: str) -> bool:
    """Could there be events of this name: a type of the log, or one that a module may publish?"""
    return event_type(name) is not None or bool(_OWN.fullmatch(name))


def check_name(name: str) -> None:
    if not is_event_name(name):
        raise unknown_choice(
            "event type", name[:80], EventType.__members__, code=Code.UNKNOWN_EVENT_TYPE, field="types"
        )


def check_published(name: str, allowed: EventsPart) -> None:
    """UNKNOWN_EVENT_TYPE unless the manifest declares that the module publishes this type."""
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


DATA_BYTES: Final = 65_536
SUBJECT_MAX: Final = 200
BYTES_PER_SECOND: Final = 1024 * 1024
BURST_SECONDS: Final = 5
"""Burst of a module's rate, in seconds."""


class EventPace:
    """Rate limit of published events per module: a burst, then so many events and bytes a second. A module
    that is faster waits and is not refused: it delays only its own calls."""

    def __init__(self, *, per_second: float, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._modules: dict[str, tuple[TokenBucket, TokenBucket]] = {}

    async def turn(self, module_id: str, size: int) -> None:
        """Wait until the module may publish an event of this size."""
        events, bytes = self._modules.get(module_id) or self._new(module_id)
        while (pause := max(events.wait(), bytes.wait())) > 0:
            await asyncio.sleep(pause)
        events.spend(1)
        bytes.spend(size)

    def _new(self, module_id: str) -> tuple[TokenBucket, TokenBucket]:
        pair = self._modules[module_id] = self._bucket(self._per_second), self._bucket(BYTES_PER_SECOND)
        return pair

    def _bucket(self, per_second: float) -> TokenBucket:
        monotonic = self._clock.monotonic
        return TokenBucket(burst=BURST_SECONDS * per_second, per_second=per_second, monotonic=monotonic)


def published_data(asked: Publish, allowed: EventsPart) -> bytes:
    """The event's data as JSON. UNKNOWN_EVENT_TYPE, INVALID_FIELD for what may not be published."""
    check_published(asked.type, allowed)
    if len(asked.subject) > SUBJECT_MAX:
        raise Rejected(
            Code.INVALID_FIELD, f"the subject is longer than {SUBJECT_MAX} characters", field="subject"
        )
    return encoded_data(asked.data)


def encoded_data(data: dict[str, Any]) -> bytes:
    """The data of an event as JSON. INVALID_FIELD unless every receiver can decode it: the depth is checked
    before anything is encoded, then the size, and numbers that not every encoder supports."""
    if deeper_than(data, MAX_DEPTH):
        raise Rejected(
            Code.INVALID_FIELD,
            f"the data of an event is nested deeper than {MAX_DEPTH} levels",
            hint="tell less, or flatten it",
            field="data",
        )
    try:
        encoded = msgspec.json.encode(data)
        msgspec.msgpack.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Rejected(
            Code.INVALID_FIELD, f"the data of an event must be JSON: {error}", field="data"
        ) from None
    if len(encoded) > DATA_BYTES:
        raise Rejected(
            Code.INVALID_FIELD,
            f"the data of an event has {len(encoded)} bytes, at most {DATA_BYTES} are taken",
            hint="store it as a document and tell its id",
            field="data",
        )
    return encoded
