"""What a module may tell, and how large it may be; the same on both hosts."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.domain.module_manifest import EventsPart
from corral.domain.nesting import MAX_DEPTH, deeper_than
from corral.errors import Code, Rejected
from corral.modules.event_names import check_published
from corral.sdk.messages import Publish

DATA_BYTES: Final = 65_536
SUBJECT_MAX: Final = 200


def published_data(asked: Publish, allowed: EventsPart) -> bytes:
    """The event's data as JSON. UNKNOWN_EVENT_TYPE, INVALID_FIELD for what may not be told."""
    check_published(asked.type, allowed)
    if len(asked.subject) > SUBJECT_MAX:
        raise Rejected(
            Code.INVALID_FIELD, f"the subject is longer than {SUBJECT_MAX} characters", field="subject"
        )
    return encoded_data(asked.data)


def encoded_data(data: dict[str, Any]) -> bytes:
    """The data of an event as JSON. INVALID_FIELD unless everybody on its way can carry it: not too deep,
    before anything is encoded, and neither too large nor with numbers that not every encoder knows."""
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
