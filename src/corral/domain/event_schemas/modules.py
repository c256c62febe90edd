"""Schemas of events about modules and capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import UNSET, UnsetType, field

from corral.domain.event_schemas.schema import At, EventData, EventSchema, Node, Reason, Version, said
from corral.domain.events import EventType
from corral.domain.modules.phases import ModuleIntent, ModulePhase

ModuleId = Annotated[str, said("Id of the module.", "stats-aggregator")]
Before = Annotated[ModulePhase | None, said("The phase it was in; null: it was not there.", "INSTALLED")]
Now = Annotated[ModulePhase, said("The phase it is in now.", "ACTIVE")]
Intent = Annotated[ModuleIntent, said("What an operator wants of it.", "active")]
Previous = Annotated[str, said("The version before.", "1.1.0")]


class ModuleStepData(EventData, frozen=True, kw_only=True):
    """A step of a module on the controller."""

    id: ModuleId
    version: Version
    from_: Before = field(name="from")
    to: Now
    intent: Intent
    reason: Reason
    at: At


class ModuleUpgradedData(ModuleStepData, frozen=True, kw_only=True):
    """From which version to which."""

    previous_version: Previous


class ModuleUpgradeRolledBackData(ModuleStepData, frozen=True, kw_only=True):
    """Why the new version does not serve."""

    previous_version: Previous
    steps: Annotated[list[str], said("What was done, step by step.", ["1.2.0 failed to start"])]


class ModuleConfiguredData(ModuleStepData, frozen=True, kw_only=True):
    """Which settings changed."""

    changed: Annotated[list[str], said("Keys of the settings that changed.", ["interval"])]


class ModuleStorageDroppedData(EventData, frozen=True, kw_only=True):
    """Whose data is gone."""

    id: ModuleId


class ModuleLeakedData(EventData, frozen=True, kw_only=True):
    """What kept a process from ending; of a removed module only its id is known."""

    id: ModuleId
    at: At
    version: Version | UnsetType = UNSET
    from_: Before | UnsetType = field(name="from", default=UNSET)
    to: Now | UnsetType = UNSET
    intent: Intent | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    pid: Annotated[int, said("Id of the process.", 4711)]
    killed: Annotated[bool, said("Whether it was killed.", True)]
    threads: Annotated[list[str], said("Names of threads that went on.", ["worker-1"])]
    tasks: Annotated[list[str], said("Names of tasks that went on.", ["poll"])]
    children: Annotated[list[str], said("Command lines of processes that it left.", ["sleep 600"])]


class ModuleNodeStateData(EventData, frozen=True, kw_only=True):
    """A step of a module on a node."""

    id: ModuleId
    node: Node
    version: Version
    from_: Before = field(name="from")
    to: Now
    intent: Intent
    reason: Reason
    refused_sha256: Annotated[str, said("SHA-256 of an archive that the node refused; empty: none.", "")]
    at: At


class CapabilityData(EventData, frozen=True, kw_only=True):
    """A capability and who provides it."""

    id: Annotated[str, said("Id of the capability.", "webhook.out")]
    version: Annotated[str, said("Its version.", "1.0.0")]
    provider: Annotated[str, said("Id of the module that provides it.", "webhook-alerts")]


class CapabilityClearedData(CapabilityData, frozen=True, kw_only=True):
    """A capability that nobody provides any more."""

    reason: Reason


class CapabilityConflictData(EventData, frozen=True, kw_only=True):
    """A capability that two modules want to provide."""

    id: Annotated[str, said("Id of the capability.", "webhook.out")]
    version: Annotated[str, said("The version that is refused.", "1.0.0")]
    module: Annotated[str, said("Id of the module that is refused.", "other-alerts")]
    reason: Reason


_T = EventType
SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    _T.MODULE_INSTALLED: EventSchema("A package was accepted, or recovered.", ModuleStepData),
    _T.MODULE_WAITING: EventSchema(
        "A module is loaded and waits for capabilities; `reason` names the first.", ModuleStepData
    ),
    _T.MODULE_ACTIVATED: EventSchema(
        "A module started: its routes, capabilities and subscriptions are in force.", ModuleStepData
    ),
    _T.MODULE_STOPPING: EventSchema("A module is being stopped.", ModuleStepData),
    _T.MODULE_DEACTIVATED: EventSchema(
        "A module is installed and does not run; nothing it registered is left.", ModuleStepData
    ),
    _T.MODULE_FAILED: EventSchema("A module failed and stays so until an operator acts.", ModuleStepData),
    _T.MODULE_UNINSTALLED: EventSchema("A package was removed.", ModuleStepData),
    _T.MODULE_UPGRADED: EventSchema("A module runs in another version.", ModuleUpgradedData),
    _T.MODULE_UPGRADE_ROLLED_BACK: EventSchema(
        "A new version did not become active; the old one serves again, its documents as before.",
        ModuleUpgradeRolledBackData,
    ),
    _T.MODULE_CONFIGURED: EventSchema("A module's settings changed.", ModuleConfiguredData),
    _T.MODULE_STORAGE_DROPPED: EventSchema(
        "The data of an uninstalled module was deleted.", ModuleStorageDroppedData
    ),
    _T.MODULE_LEAKED: EventSchema(
        "A module's process did not end by itself and was killed.", ModuleLeakedData
    ),
    _T.MODULE_NODE_STATE: EventSchema(
        "A module took a step on a node. What it failed of is with the module, for those who may read logs.",
        ModuleNodeStateData,
    ),
    _T.CAPABILITY_REGISTERED: EventSchema("A capability has a provider.", CapabilityData),
    _T.CAPABILITY_CLEARED: EventSchema("A capability has no provider any more.", CapabilityClearedData),
    _T.CAPABILITY_REBOUND: EventSchema(
        "A capability is provided by another version; handles stay good.", CapabilityData
    ),
    _T.CAPABILITY_CONFLICT: EventSchema(
        "A second provider of a capability was refused, or failed; the first one goes on.",
        CapabilityConflictData,
    ),
}
