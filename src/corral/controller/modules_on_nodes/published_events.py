"""Events that modules on nodes publish: checked, and appended to the log with their node."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from corral.controller.state.ledger import Step
from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.records import PackageRecord
from corral.domain.node_claims import reported_time
from corral.errors import Rejected
from corral.modules.services.event_rules import DATA_BYTES, SUBJECT_MAX, check_published, encoded_data
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock
from corral.system.logger import LogQuota
from corral.wire.v1.module_pb2 import EventPublish

_TEXT: Final = 80
PER_SECOND: Final = 2_000
KIB_PER_SECOND: Final = 4_096
BURST_SECONDS: Final = 30
"""Burst of the rate limits, which apply to all modules of a node together: it covers what they published
while the node was disconnected."""
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_log = structlog.get_logger("corral.controller.modules_on_nodes")


class PublishedEvents:
    """Checks and rate limits of events that nodes publish for their modules. A node can publish in the name
    of any module it has, so the limit is per node. Refusals are logged once a second for each module."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._quota = LogQuota(clock=clock)
        self._nodes: dict[NodeId, tuple[TokenBucket, TokenBucket]] = {}

    def steps(self, node_id: NodeId, frame: EventPublish, record: PackageRecord | None) -> list[Step]:
        return published(
            node_id, frame, record, self._clock.now(), lambda why: self._refuse(node_id, frame, why)
        )

    def admit(self, node_id: NodeId, frame: EventPublish) -> bool:
        """Is the event within the node's rate limit? Each call counts, so call it once per event, however
        often storing it is retried. Our own daemons pace what they send and never reach the limit."""
        in_time = self._in_time(node_id, len(frame.payload_json))
        if not in_time:
            why = f"the node publishes more than {PER_SECOND} events, or {KIB_PER_SECOND} KiB, a second"
            self._refuse(node_id, frame, why)
        return in_time

    def _refuse(self, node_id: NodeId, frame: EventPublish, why: str) -> None:
        unsaid = self._quota.admit(node_id, frame.module_id[:_TEXT])
        if unsaid is not None:
            _log.warning(
                "bridge_event.refused",
                node=node_id,
                module=frame.module_id[:_TEXT],
                type=frame.event_type[:_TEXT],
                reason=why,
                unsaid=unsaid,
            )

    def _in_time(self, node_id: NodeId, size: int) -> bool:
        if node_id not in self._nodes:
            self._nodes[node_id] = self._bucket(PER_SECOND), self._bucket(KIB_PER_SECOND)
        events, kib = self._nodes[node_id]
        return events.take() and kib.take(1 + size // 1024)

    def _bucket(self, per_second: int) -> TokenBucket:
        monotonic = self._clock.monotonic
        return TokenBucket(burst=per_second * BURST_SECONDS, per_second=per_second, monotonic=monotonic)


def published(
    node_id: NodeId,
    frame: EventPublish,
    record: PackageRecord | None,
    now: dt.datetime,
    refuse: Callable[[str], None] = lambda _: None,
) -> list[Step]:
    """The log event of an event that a module on a node published; empty when it is not permitted, and
    `refuse` receives the reason.

    `record` is that of the module it names. The node made the same checks; they are repeated here because a
    node is not trusted.
    """
    data = _data(frame.payload_json)
    why = _objection(frame, record) or (
        "its payload is no JSON object, or too large or too deep" if data is None else ""
    )
    if why:
        refuse(why)
        return []
    stamped = {
        "module": frame.module_id,
        "node": node_id,
        "type": frame.event_type,
        "subject": frame.subject,
        "published_at": (reported_time(frame.published_at_ms, now) or now).isoformat(),
        "data": data,
    }
    subject = f"{frame.module_id}/{frame.event_type}"
    return [Draft(type=EventType.MODULE_EVENT, subject=subject, data=stamped)]


def _objection(frame: EventPublish, record: PackageRecord | None) -> str:
    if record is None or record.id != frame.module_id:
        return "there is no such module"
    if ModuleHost.DAEMON not in record.manifest.hosts:
        return "the module has no part on nodes"
    if len(frame.subject) > SUBJECT_MAX:
        return f"its subject is longer than {SUBJECT_MAX} characters"
    try:
        check_published(frame.event_type, record.manifest.events)
    except Rejected as error:
        return str(error)
    return ""


def _data(payload: bytes) -> dict[str, Any] | None:
    """The payload, decoded; None when it is invalid or could not be stored: an event that cannot be encoded
    would block everything the node reports."""
    if len(payload) > DATA_BYTES:
        return None
    try:
        data = _DECODER.decode(payload or b"{}")
        encoded_data(data)
    except (Rejected, ValueError, RecursionError):
        return None
    return data
