"""Bounds of a group's fields that its types do not have, for JSON schemas. The checks refuse what goes beyond them; the types
are wider, so that what an earlier version stored stays readable."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.domain.groups.document_faults import MOST_ENTRIES
from corral.domain.groups.group import NODE_CAPABILITIES, RUNTIMES, GroupSpec
from corral.domain.groups.group_checks import MAP_BOUNDS, MAX_NAME, MAX_USER, MapBound
from corral.domain.groups.placement_checks import MOST_NAMES
from corral.domain.groups.probes import MAX_PROBES
from corral.domain.groups.variable_checks import MAX_VARIABLES

_ID: Final = {"type": "string", "minLength": 1, "maxLength": 63}


def _map(bound: MapBound) -> dict[str, Any]:
    values = {"additionalProperties": {"type": "string", "maxLength": bound.value}} if bound.value else {}
    return {
        "maxProperties": bound.entries,
        "propertyNames": {"minLength": 1, "maxLength": bound.key},
        **values,
    }


MAPS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{field: _map(bound) for field, bound in MAP_BOUNDS.items()},
    "variables": {"maxProperties": MAX_VARIABLES, "propertyNames": {"minLength": 1, "maxLength": 128}},
}
"""Of whole documents; the maps of a merge patch may have nulls, too, and more keys than are left."""

OTHERS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{
        field.name: {"maxItems": MOST_ENTRIES}
        for field in msgspec.structs.fields(GroupSpec)
        if typing.get_origin(field.type) is tuple
    },
    "name": {"minLength": 1, "maxLength": MAX_NAME},
    "runtime": {"enum": list(RUNTIMES)},
    "run_as": {"maxLength": MAX_USER},
    "static_names": {"maxItems": MOST_NAMES, "items": _ID},
    "nodes": {"maxItems": MOST_ENTRIES, "items": _ID},
    "node_capabilities": {"items": {"enum": list(NODE_CAPABILITIES)}},
    "probes": {"maxItems": MAX_PROBES},
}
