"""The layers of a run's variables, in the one order in which they win over each other.

Lowest first: templates in the order they are laid, the group's properties, the group's variables, the
node's labels, the instance's own, and what is built in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from corral.domain.spec import VariableSpec, VariableType
from corral.domain.templates import TemplateSettings

_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9_]")
LABEL_PREFIX: Final = "LABEL_"


def variable_name(text: str) -> str:
    """A free name as that of a variable: `query-2` is `QUERY_2`."""
    return _NOT_IN_NAMES.sub("_", text.upper())


def merge_layers(*layers: Mapping[str, str]) -> dict[str, str]:
    """All of them, lowest first: a later one wins."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def declared(
    templates: Iterable[TemplateSettings], group: Mapping[str, VariableSpec]
) -> dict[str, VariableSpec]:
    """The declarations that hold: the group's win over those of its templates, later templates over earlier."""
    merged: dict[str, VariableSpec] = {}
    for settings in templates:
        merged.update(settings.variable_types)
    return {**merged, **group}


def defaults(types: Mapping[str, VariableSpec]) -> dict[str, str]:
    """The lowest layer of all."""
    return {name: spec.default for name, spec in types.items() if spec.default is not None}


def template_layer(templates: Iterable[TemplateSettings]) -> dict[str, str]:
    """Of templates in the order in which they are laid."""
    return merge_layers(*(settings.variables for settings in templates))


def property_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """A group's properties: `map-size` is `%MAP_SIZE%`."""
    return {variable_name(name): value for name, value in properties.items()}


def label_variables(labels: Mapping[str, str]) -> dict[str, str]:
    """A node's labels: `zone` is `%LABEL_ZONE%`. Of two that come to one name the last by name holds."""
    return {LABEL_PREFIX + variable_name(name): labels[name] for name in sorted(labels)}


def run_variables(
    planned: Mapping[str, str],
    *,
    node_labels: Mapping[str, str],
    instance: Mapping[str, str],
    built_in: Mapping[str, str],
) -> dict[str, str]:
    """Everything a run knows; `planned` is `Plan.variables`. Secrets are references still."""
    return merge_layers(planned, label_variables(node_labels), instance, built_in)


def secrets_among(types: Mapping[str, VariableSpec], values: Mapping[str, str]) -> dict[str, str]:
    """The references that have to be looked up before these values are used."""
    return {
        name: values[name]
        for name, spec in types.items()
        if spec.type is VariableType.SECRET and values.get(name)
    }
