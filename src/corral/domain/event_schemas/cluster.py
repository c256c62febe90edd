"""Schemas of events about the cluster, its store, templates and the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import UNSET, UnsetType, field

from corral.domain.event_schemas.schema import By, EventData, EventSchema, NoData, Reason, said
from corral.domain.events import EventType


class ClusterEpochRaisedData(EventData, frozen=True, kw_only=True):
    """The new epoch of a cluster."""

    epoch: Annotated[int, said("The new epoch.", 4294967297)]


class LeaderChangedData(EventData, frozen=True, kw_only=True):
    """Who leads."""

    holder: Annotated[str, said("The controller that leads.", "controller-1")]
    epoch: Annotated[int, said("The epoch of its term.", 3)]


class LogLevelChangedData(EventData, frozen=True, kw_only=True):
    """The level of a log."""

    source: Annotated[str, said("Whose log: `controller` or `node:ID`.", "node:web-1")]
    level: Annotated[str, said("The level from now on.", "debug")]


class EventUnreadableData(EventData, frozen=True, kw_only=True):
    """What is known of an event of another version."""

    type: Annotated[str, said("The name of its type.", "MOON_RISEN")]
    omitted: Annotated[str, said("Why its data is omitted.", "this version does not know the type")]


class DocumentUnreadableData(EventData, frozen=True, kw_only=True):
    """A document of the store that cannot be read."""

    collection: Annotated[str, said("The collection it is in.", "groups")]
    id: Annotated[str, said("Id of the document.", "lobby")]
    revision: Annotated[int, said("The revision under which it is stored.", 812)]
    reason: Reason


class StoreOlderThanNodeData(EventData, frozen=True, kw_only=True):
    """How far the store is behind."""

    stored: Annotated[int, said("Number of the last report that the store has.", 120)]
    confirmed: Annotated[int, said("Number of the last report that was confirmed to the node.", 180)]


class TemplateVersionData(EventData, frozen=True, kw_only=True):
    """The new version of a template."""

    version: Annotated[int, said("Number of the version.", 14)]
    hash: Annotated[str, said("Hash of its content.", "9f86d081884c7d65")]
    files: Annotated[int, said("How many files it has.", 12)]
    size: Annotated[int, said("Their size in bytes.", 48213)]
    note: Annotated[str, said("A word on the change, for people.", "new spawn")]
    by: By


class TemplateRolledBackData(EventData, frozen=True, kw_only=True):
    """From which version to which."""

    version: Annotated[int, said("The version that new starts use now.", 13)]
    from_: Annotated[int, said("The version that they used before.", 14)] = field(name="from")
    hash: Annotated[str, said("Hash of the content in use now.", "9f86d081884c7d65")]
    by: By


class TemplateDeletedData(EventData, frozen=True, kw_only=True):
    """What a deleted template had."""

    version: Annotated[int, said("The version in use at last.", 14)]
    versions: Annotated[int, said("How many versions were deleted.", 9)]


class CatalogUpdatedData(EventData, frozen=True, kw_only=True):
    """The entry of a catalog."""

    file: Annotated[str, said("Name of the file.", "server.jar")]
    sha256: Annotated[str, said("SHA-256 of its content.", "e3b0c44298fc1c14")]
    url: Annotated[
        str, said("Where nodes get it; empty: from the controller.", "https://example.org/server.jar")
    ]


class CatalogRemovedData(EventData, frozen=True, kw_only=True):
    """The removed entry."""

    sha256: Annotated[str, said("SHA-256 of the content.", "e3b0c44298fc1c14")]


class ModuleEventData(EventData, frozen=True, kw_only=True):
    """What a module published."""

    module: Annotated[str, said("Id of the module.", "stats-aggregator")]
    node: (
        Annotated[str, said("The node on which it was published; absent: on the controller.", "web-1")]
        | UnsetType
    ) = UNSET
    type: Annotated[str, said("The module's own name of the event.", "ROUND_OVER")]
    subject: Annotated[str, said("What it is about, as the module says.", "lobby-3")]
    published_at: (
        Annotated[str, said("When the module on the node published it.", "2026-01-01T12:00:00+00:00")]
        | UnsetType
    ) = UNSET
    data: Annotated[dict[str, Any], said("The module's own data.", {"winner": "red"})]


_T = EventType
SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    _T.CLUSTER_CREATED: EventSchema(
        "A controller founded the cluster: identity, authority, first administrator.", NoData
    ),
    _T.CLUSTER_EPOCH_RAISED: EventSchema("An administrator lifted the epoch.", ClusterEpochRaisedData),
    _T.LEADER_CHANGED: EventSchema("A controller began to lead.", LeaderChangedData),
    _T.LOG_LEVEL_CHANGED: EventSchema("A log level was switched at run time.", LogLevelChangedData),
    _T.EVENT_UNREADABLE: EventSchema(
        "Stands in for an event whose type this version of Corral does not know; it is shown and never stored.",
        EventUnreadableData,
    ),
    _T.DOCUMENT_UNREADABLE: EventSchema(
        "A document of the store could not be read when the leader began. It is left as it is; the rest works.",
        DocumentUnreadableData,
    ),
    _T.STORE_OLDER_THAN_NODE: EventSchema(
        "A node has the confirmation of reports that the store does not know: what was stored after the last report "
        "known is lost.",
        StoreOlderThanNodeData,
    ),
    _T.TEMPLATE_CREATED: EventSchema("A template was made.", TemplateVersionData),
    _T.TEMPLATE_UPDATED: EventSchema("A template has a new version.", TemplateVersionData),
    _T.TEMPLATE_ROLLED_BACK: EventSchema("New starts use an earlier version again.", TemplateRolledBackData),
    _T.TEMPLATE_DELETED: EventSchema("A template was deleted with all its versions.", TemplateDeletedData),
    _T.CATALOG_UPDATED: EventSchema("An entry of the catalog was made or changed.", CatalogUpdatedData),
    _T.CATALOG_REMOVED: EventSchema("An entry of the catalog was removed.", CatalogRemovedData),
    _T.MODULE_EVENT: EventSchema("A module published an event; `subject` is `ID/TYPE`.", ModuleEventData),
}
