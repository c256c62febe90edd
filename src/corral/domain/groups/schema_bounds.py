"""Bounds of a group's fields that its types do not have, for JSON schemas. The checks refuse what goes beyond them; the types
are wider, so that what an earlier version stored stays readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from corral.domain.groups.group import NODE_CAPABILITIES, RUNTIMES
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
    "name": {"minLength": 1, "maxLength": MAX_NAME},
    "runtime": {"enum": list(RUNTIMES)},
    "run_as": {"maxLength": MAX_USER},
    "static_names": {"maxItems": MOST_NAMES, "items": _ID},
    "nodes": {"items": _ID},
    "node_capabilities": {"items": {"enum": list(NODE_CAPABILITIES)}},
    "probes": {"maxItems": MAX_PROBES},
}
