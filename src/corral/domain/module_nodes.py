"""How modules stand on nodes, and what they made of the starts of instances there."""

from __future__ import annotations

import datetime as dt

from corral.domain.ids import NodeId
from corral.domain.module_phases import ModuleIntent, ModulePhase
from corral.domain.records import Record


class NodeModuleState(Record, frozen=True, kw_only=True):
    """A module on one node, as the node told last. `version` and `sha256` are what it has there, which is not
    the installed one where a new version did not come up (then `refused_sha256` names that)."""

    node: NodeId
    module: str
    phase: ModulePhase
    version: str
    sha256: str
    intent: ModuleIntent
    reason: str = ""
    error: str = ""
    refused_sha256: str = ""
    recover: bool = False
    """An operator asked for another try while the node was away; it is told when it is back."""
    updated_at: dt.datetime


def node_module_key(node: str, module: str) -> str:
    """The id of a node's state of a module in the store."""
    return f"{node}/{module}"


class ModuleChange(Record, frozen=True, kw_only=True):
    """What a module on the node made of one start. With `dropped` nothing of it was taken, and that says why."""

    module: str
    version: str = ""
    jvm_args_added: tuple[str, ...] = ()
    jvm_args_removed: tuple[str, ...] = ()
    args_added: tuple[str, ...] = ()
    args_removed: tuple[str, ...] = ()
    env_set: tuple[str, ...] = ()
    """Names alone: values may be secrets."""
    env_removed: tuple[str, ...] = ()
    dropped: str = ""
