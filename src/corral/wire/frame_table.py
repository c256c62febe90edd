"""The kinds of frames on the control stream, in both directions: how each is delivered, which fields it must
have, and which component handles it.

No other code checks the kind of a frame. A kind that is in no table comes from a newer peer, and is ignored:
additions are allowed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from corral.errors import Code, Rejected
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

E = TypeVar("E", ControllerMessage, DaemonMessage)


class FrameDelivery(enum.Enum):
    """The treatment of a frame by the reader of a stream."""

    STREAM = "stream"
    """A rule of the stream itself: one that is out of place ends it."""
    NOW = "now"
    """Passed to its owner when it is read, and not stored."""
    STORED = "stored"
    """Stored in the order of arrival, and confirmed if it has a number."""
    BOTH = "both"
    """Stored; its momentary content is passed to its owner before that."""
    IGNORED = "ignored"
    """Part of the protocol, and not used here."""


class FrameOwner(enum.StrEnum):
    """The component that handles a frame. An error about it has this as its context."""

    LINK = "link"
    LOG = "log"
    INSTANCES = "instances"
    CONSOLES = "consoles"
    TEMPLATES = "templates"
    FILES = "files"
    MODULES = "modules"


class FrameRule(msgspec.Struct, frozen=True, kw_only=True):
    owner: FrameOwner
    delivery: FrameDelivery = FrameDelivery.NOW
    required: tuple[str, ...] = ()
    """Required fields."""
    momentary: str = ""
    """A field that, above zero in a frame without a number, marks it as momentary: then it is not stored."""

    @property
    def stored(self) -> bool:
        return self.delivery in (FrameDelivery.STORED, FrameDelivery.BOTH)


_LINK: Final = FrameRule(owner=FrameOwner.LINK)
_STREAM: Final = FrameRule(owner=FrameOwner.LINK, delivery=FrameDelivery.STREAM)
_IGNORED: Final = FrameRule(owner=FrameOwner.LINK, delivery=FrameDelivery.IGNORED)
_INSTANCES: Final = FrameRule(owner=FrameOwner.INSTANCES)
_CONSOLES: Final = FrameRule(owner=FrameOwner.CONSOLES)
_TEMPLATES: Final = FrameRule(owner=FrameOwner.TEMPLATES)
_FILES: Final = FrameRule(owner=FrameOwner.FILES)
_MODULES: Final = FrameRule(owner=FrameOwner.MODULES)
_LOG: Final = FrameRule(owner=FrameOwner.LOG, delivery=FrameDelivery.STORED)

FROM_NODES: Final[Mapping[str, FrameRule]] = {
    "handshake": FrameRule(
        owner=FrameOwner.LINK,
        delivery=FrameDelivery.STREAM,
        required=("node_id", "version", "protocol_version"),
    ),
    "handshake_portion": _STREAM,
    "batch": _STREAM,
    "pong": _LINK,
    "ping": _LINK,
    "node_status": _LINK,
    "certificate_request": _LINK,
    "run_ends": _LINK,
    "shutdown_node_ack": _LINK,
    "node_command_result": _LINK,
    "daemon_log_record": _LOG,
    "error_report": _LOG,
    "instance_status": FrameRule(
        owner=FrameOwner.INSTANCES,
        delivery=FrameDelivery.BOTH,
        required=("instance_id", "state"),
        momentary="stage",
    ),
    "crash_report": FrameRule(
        owner=FrameOwner.INSTANCES, delivery=FrameDelivery.STORED, required=("instance_id", "group")
    ),
    "start_instance_ack": FrameRule(
        owner=FrameOwner.INSTANCES, delivery=FrameDelivery.BOTH, required=("instance_id",)
    ),
    "stop_instance_ack": FrameRule(
        owner=FrameOwner.INSTANCES, delivery=FrameDelivery.BOTH, required=("instance_id",)
    ),
    "send_command_ack": _INSTANCES,
    "console_output": _CONSOLES,
    "console_batch": _CONSOLES,
    "console_query_failed": _CONSOLES,
    "template_request": FrameRule(owner=FrameOwner.TEMPLATES, required=("template_name",)),
    "cache_status": _TEMPLATES,
    "save_files_failed": _FILES,
    "instance_file_tree": _FILES,
    "instance_file_content": _FILES,
    "instance_files_answer": _FILES,
    "module_state_update": FrameRule(
        owner=FrameOwner.MODULES,
        delivery=FrameDelivery.BOTH,
        required=("module_id",),
        momentary="size_bytes",
    ),
    "event_publish": FrameRule(owner=FrameOwner.MODULES, delivery=FrameDelivery.STORED),
    "event_subscribe": _MODULES,
    "event_unsubscribe": _MODULES,
    "capability_call": _MODULES,
    "module_metrics": _MODULES,
    "capability_result": _IGNORED,
}

FROM_CONTROLLERS: Final[Mapping[str, FrameRule]] = {
    "handshake_ack": _STREAM,
    "batch": _STREAM,
    "ping": _LINK,
    "pong": _LINK,
    "spool_ack": _LINK,
    "certificate_issued": _LINK,
    "set_log_level": _LINK,
    "error_report": _LINK,
    "start_instance": FrameRule(owner=FrameOwner.INSTANCES, required=("instance_id", "group")),
    "stop_instance": FrameRule(owner=FrameOwner.INSTANCES, required=("instance_id",)),
    "send_command": FrameRule(owner=FrameOwner.INSTANCES, required=("instance_id", "command")),
    "workload_report": _INSTANCES,
    "ask_run_ends": _INSTANCES,
    "shutdown_node": _INSTANCES,
    "node_command": FrameRule(owner=FrameOwner.INSTANCES, required=("request_id", "words")),
    "console_ack": _CONSOLES,
    "console_query": _CONSOLES,
    "template_data": _TEMPLATES,
    "template_up_to_date": _TEMPLATES,
    "template_unavailable": _TEMPLATES,
    "pre_warm_cache": _TEMPLATES,
    "request_cache_status": _TEMPLATES,
    "save_files": FrameRule(owner=FrameOwner.FILES, required=("paths",)),
    "walk_instance_files": FrameRule(owner=FrameOwner.FILES, required=("request_id", "group", "instance_id")),
    "read_instance_file": FrameRule(
        owner=FrameOwner.FILES, required=("request_id", "group", "instance_id", "path")
    ),
    "change_instance_files": FrameRule(
        owner=FrameOwner.FILES, required=("request_id", "group", "instance_id", "verb", "path")
    ),
    "send_instance_file": FrameRule(owner=FrameOwner.FILES, required=("request_id", "group", "instance_id")),
    "module_install": FrameRule(owner=FrameOwner.MODULES, required=("module_id", "version", "sha256")),
    "module_uninstall": FrameRule(owner=FrameOwner.MODULES, required=("module_id",)),
    "module_control": FrameRule(owner=FrameOwner.MODULES, required=("module_id",)),
    "module_event": _MODULES,
    "capability_offers": _MODULES,
    "capability_result": _MODULES,
    "capability_call": _IGNORED,
}


def kind_of(message: ControllerMessage | DaemonMessage) -> str:
    """Empty when it has no payload, or one that only a newer peer knows."""
    return message.WhichOneof("payload") or ""


def messages_of(frame: E) -> Sequence[E]:
    """The messages of a batch, else the frame itself."""
    return frame.batch.messages if frame.HasField("batch") else (frame,)


class NodeFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a node, with its kind and the rule for that."""

    kind: str
    rule: FrameRule
    message: DaemonMessage

    @property
    def payload(self) -> Any:
        return getattr(self.message, self.kind)

    @property
    def sequence(self) -> int:
        """Its number in the node's spool; 0: it has none."""
        return self.message.spool_sequence

    @property
    def at_once(self) -> bool:
        """Whether it is for its owner now. A momentary kind that has a number all the same is not."""
        delivery = self.rule.delivery
        return delivery is FrameDelivery.BOTH or (delivery is FrameDelivery.NOW and not self.sequence)

    @property
    def momentary(self) -> bool:
        """Whether it is momentary, and not to be stored."""
        field = self.rule.momentary
        return bool(field) and not self.sequence and getattr(self.payload, field) > 0

    @property
    def kept(self) -> bool:
        """Whether it is for the intake. Every frame with a number is, so that it is confirmed."""
        return bool(self.sequence) or (self.rule.stored and not self.momentary)

    def complaint(self) -> Rejected | None:
        """The error about the first missing required field."""
        for field in self.rule.required:
            if not getattr(self.payload, field):
                return Rejected(Code.MISSING_FIELD, f"{self.kind}.{field} is empty", field=field)
        return None


def node_frame(message: DaemonMessage) -> NodeFrame:
    kind = kind_of(message)
    return NodeFrame(kind=kind, rule=FROM_NODES.get(kind, _IGNORED), message=message)


def require(payload: Any, *further: str) -> None:
    """MISSING_FIELD when the payload of a controller's frame lacks a required field, or one of these. An
    order has an answer, so its owner calls this, and the answer names the missing field."""
    name = payload.DESCRIPTOR.name
    for field in (*_RULES_OF_PAYLOADS[name].required, *further):
        if not getattr(payload, field):
            hint = "the controller and this node disagree about the protocol; run the same version on both"
            raise Rejected(Code.MISSING_FIELD, f"{name} lacks '{field}'", hint=hint, field=field)


_RULES_OF_PAYLOADS: Final = {
    field.message_type.name: FROM_CONTROLLERS[field.name]
    for field in ControllerMessage.DESCRIPTOR.oneofs_by_name["payload"].fields
    if field.message_type is not None
}
