"""Drift: instances that run by a former document of their group, or on a node that it would not choose now.

The *basis* of a start is the digest of everything that decides its plan before random choices: the fields of the document
that a running instance cannot take over, and the contents that it names (templates, program, extensions). A run whose
basis differs from the present one of its group is outdated; a template drawn by chance is no drift.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from corral.domain.groups.field_effects import FIELDS_RESTART
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import brief_document
from corral.domain.groups.plans import PlanArtifact, PlanExtension
from corral.domain.groups.template_selection import Layer

_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class Drift(enum.StrEnum):
    NONE = "none"
    OUTDATED = "outdated"
    """Its run was started by a former document, or with former contents."""
    PLACEMENT = "placement"
    """Its run is as the document says, on a node that it would not choose now."""
    UNKNOWN = "unknown"
    """It was started before this was recorded, or its group cannot be planned now."""


class PlacedNode(Protocol):
    """A node, as far as the document of a group decides about it."""

    @property
    def id(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def capabilities(self) -> Iterable[str]: ...


def start_basis(
    spec: GroupSpec,
    layers: Iterable[Layer],
    artifact: PlanArtifact | None,
    extensions: Iterable[PlanExtension],
) -> str:
    """The basis of a start by this document. `layers` are all that may be drawn. Fields with their default are left out,
    so that a later version of Corral, which has more of them, gets the same."""
    document = {key: value for key, value in brief_document(spec).items() if key in FIELDS_RESTART}
    if spec.disconnect.stop_after_seconds:
        document["stop_after_seconds"] = spec.disconnect.stop_after_seconds
    pins = {
        "templates": [
            [each.record.name, each.version.hash, each.override, each.version.settings] for each in layers
        ],
        "artifact": [artifact.file, artifact.sha256] if artifact else None,
        "extensions": [
            [each.module, each.id, each.variant, each.artifact.file, each.artifact.sha256]
            for each in extensions
        ],
    }
    return hashlib.sha256(_ENCODER.encode([document, pins])).hexdigest()


def misplaced(spec: GroupSpec, node: PlacedNode) -> bool:
    """Would the fields about placement refuse this node, whatever runs there?"""
    if spec.nodes and node.id not in spec.nodes:
        return True
    labels = node.labels
    if any(labels.get(key) != value for key, value in spec.node_labels.items()):
        return True
    if spec.node_capabilities and not set(spec.node_capabilities) <= set(node.capabilities):
        return True
    for each in spec.affinity:
        if each.required and each.label:
            key, _, value = each.label.partition("=")
            if (labels.get(key) == value) != (each.weight > 0):
                return True
    return False


def drift_of(started: str, present: str, *, elsewhere: bool) -> Drift:
    """By the bases of a run and of its group's next one, either empty if unknown; `elsewhere`: the run is misplaced."""
    if not started or not present:
        return Drift.UNKNOWN
    if started != present:
        return Drift.OUTDATED
    return Drift.PLACEMENT if elsewhere else Drift.NONE
