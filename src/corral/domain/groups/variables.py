"""Variables of a run: their layers, and the substitution of `%NAME%` in a command, an argument, a variable of
the environment, an address or a file.

A name that no layer defines stays as it is and is reported: the text may simply hold percent signs. Values
are not substituted again, so one that holds `%X%` itself cannot bring in another.

A higher layer wins over a lower one. Lowest first: templates in the order they are laid, the group's
properties, the group's variables, the node's labels, the instance's own, and the built-in ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

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
    """The effective declarations: the group's win over those of its templates, later templates over earlier."""
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
    """All variables of a run; `planned` is `Plan.variables`. Secrets are still references."""
    return merge_layers(planned, label_variables(node_labels), instance, built_in)


def secrets_among(types: Mapping[str, VariableSpec], values: Mapping[str, str]) -> dict[str, str]:
    """The references that have to be looked up before these values are used."""
    return {
        name: values[name]
        for name, spec in types.items()
        if spec.type is VariableType.SECRET and values.get(name)
    }


_NAME: Final = re.compile(rb"%([A-Z][A-Z0-9_]{0,127})%")

ALIASES: Final[Mapping[str, str]] = {
    "NODE_PORT": "PORT",
    "MASTER_IP": "CONTROLLER_ADDRESS",
    "MASTER_ADDRESS": "CONTROLLER_ADDRESS",
    "MASTER_PORT": "CONTROLLER_API_PORT",
    "MASTER_API_PORT": "CONTROLLER_API_PORT",
    "CONFIGURATION_NAME": "GROUP",
    "RAM_MB": "MEMORY_MB",
}
"""Names that other systems use for these values, and the port as the node sees it."""


BUILT_IN: Final = frozenset(
    {
        "INSTANCE_ID",
        "INSTANCE_NAME",
        "GROUP",
        "NODE_ID",
        "NODE_ADDRESS",
        "HOST_ADDRESS",
        "CONTROLLER_ADDRESS",
        "CONTROLLER_API_PORT",
        "PORT",
        "MEMORY_MB",
        "MAX_PLAYERS",
        *ALIASES,
    }
)
"""Names that every run has, whatever the layers define; `PORT_<NAME>` beside them."""
INSTANCE_GROUPS: Final = "INSTANCE_GROUPS"
"""Universe's name for the words that an instance is found by: the group's name unless a layer defines others."""


class InstanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the built-in variables of one run."""

    instance_id: str
    group: str
    node_id: str
    node_address: str
    host_address: str = ""
    """Where the workload listens; empty: at the node's address."""
    controller_address: str = ""
    controller_api_port: int = 0
    port: int = 0
    ports: Mapping[str, int] = {}
    """Every port by its name, the primary one included."""
    memory_mb: int = 0
    max_players: int = 0
    instance_groups: str = ""
    """See `INSTANCE_GROUPS`; empty: the group's name."""


def built_in(facts: InstanceFacts) -> dict[str, str]:
    """The variables every run has; those without a value now are left out, so that they are reported as
    missing."""
    values: dict[str, str | int] = {
        "INSTANCE_ID": facts.instance_id,
        "INSTANCE_NAME": facts.instance_id,
        "GROUP": facts.group,
        INSTANCE_GROUPS: facts.instance_groups or facts.group,
        "NODE_ID": facts.node_id,
        "NODE_ADDRESS": facts.node_address,
        "HOST_ADDRESS": facts.host_address or facts.node_address,
        "CONTROLLER_ADDRESS": facts.controller_address,
        "CONTROLLER_API_PORT": facts.controller_api_port,
        "PORT": facts.port,
        **{f"PORT_{port_variable(name)}": number for name, number in facts.ports.items()},
    }
    found = {name: str(value) for name, value in values.items() if value}
    found |= {"MEMORY_MB": str(facts.memory_mb), "MAX_PLAYERS": str(facts.max_players)}
    return found | {alias: found[name] for alias, name in ALIASES.items() if name in found}


def port_variable(name: str) -> str:
    """A port's name as part of a variable's: `query-2` is `PORT_QUERY_2`."""
    return variable_name(name)


class Substituted(msgspec.Struct, frozen=True):
    text: str
    unresolved: tuple[str, ...] = ()


class UnresolvedVariable(msgspec.Struct, frozen=True):
    """A name that no layer defines, and the line (from 1) of its first use."""

    name: str
    line: int


class SubstitutedBytes(msgspec.Struct, frozen=True):
    data: bytes
    unresolved: tuple[UnresolvedVariable, ...] = ()
    """Each name once, in the order of the data."""
    replaced: int = 0
    """0: `data` is what was given."""


def substitute(text: str, values: Mapping[str, str]) -> Substituted:
    """The text with every known `%NAME%` replaced, and the unknown names."""
    if "%" not in text:
        return Substituted(text)
    result = substitute_bytes(text.encode(errors="surrogatepass"), values)
    found = result.data.decode(errors="surrogatepass") if result.replaced else text
    return Substituted(found, tuple(each.name for each in result.unresolved))


def substitute_all(texts: Iterable[str], values: Mapping[str, str]) -> tuple[list[str], tuple[str, ...]]:
    """Each text substituted, and every unresolved name once."""
    results = [substitute(text, values) for text in texts]
    names = dict.fromkeys(name for result in results for name in result.unresolved)
    return [result.text for result in results], tuple(names)


def substitute_bytes(data: bytes, values: Mapping[str, str]) -> SubstitutedBytes:
    """The same for a file of any encoding that extends ASCII: bytes that are no `%NAME%` stay untouched.

    Whether an unresolved name is an error is for the caller to decide.
    """
    pieces: list[bytes] = []
    missing: dict[str, int] = {}
    copied = position = lines = counted = replaced = 0
    shared = -1
    while (match := _NAME.search(data, position)) is not None:
        name = match[1].decode()
        value = values.get(name)
        if value is not None:
            pieces += (data[copied : match.start()], value.encode(errors="surrogatepass"))
            replaced += 1
            copied = position = match.end()
            continue
        if match.start() != shared and name not in missing:
            lines += data.count(b"\n", counted, match.start())
            counted = match.start()
            missing[name] = lines + 1
        # The sign that ends an unknown name may begin a known one, as in `100%OFF%PORT%`.
        position = shared = match.end() - 1
    if not replaced:
        return SubstitutedBytes(data, _listed(missing))
    pieces.append(data[copied:])
    return SubstitutedBytes(b"".join(pieces), _listed(missing), replaced)


def _listed(missing: Mapping[str, int]) -> tuple[UnresolvedVariable, ...]:
    return tuple(UnresolvedVariable(name, line) for name, line in missing.items())
