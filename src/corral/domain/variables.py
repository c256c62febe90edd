"""`%NAME%` in a command, an argument or a variable of the environment.

A name that nobody defines stays as it is and is reported: the text may simply hold percent signs.
Values are not looked at again, so one that holds `%X%` itself cannot bring in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_NAME: Final = re.compile(r"%([A-Z][A-Z0-9_]{0,127})%")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9_]")

ALIASES: Final[Mapping[str, str]] = {
    "MASTER_IP": "CONTROLLER_ADDRESS",
    "MASTER_ADDRESS": "CONTROLLER_ADDRESS",
    "MASTER_PORT": "CONTROLLER_API_PORT",
    "MASTER_API_PORT": "CONTROLLER_API_PORT",
    "CONFIGURATION_NAME": "GROUP",
    "INSTANCE_GROUPS": "GROUP",
    "RAM_MB": "MEMORY_MB",
}
"""What migrants know these values as."""


class InstanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the built-in variables of one run are made of."""

    instance_id: str
    group: str
    node_id: str
    node_address: str
    controller_address: str = ""
    controller_api_port: int = 0
    port: int = 0
    ports: Mapping[str, int] = {}
    """Every port by its name, the primary one included."""
    memory_mb: int = 0
    max_players: int = 0


def built_in(facts: InstanceFacts) -> dict[str, str]:
    """The variables every run has; those without a value now are left out, so that they are missed."""
    values: dict[str, str | int] = {
        "INSTANCE_ID": facts.instance_id,
        "INSTANCE_NAME": facts.instance_id,
        "GROUP": facts.group,
        "NODE_ID": facts.node_id,
        "NODE_ADDRESS": facts.node_address,
        "HOST_ADDRESS": facts.node_address,
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
    return _NOT_IN_NAMES.sub("_", name.upper())


class Substituted(msgspec.Struct, frozen=True):
    text: str
    unresolved: tuple[str, ...] = ()


def substitute(text: str, values: Mapping[str, str]) -> Substituted:
    """The text with every known `%NAME%` replaced, and the names nobody knows."""
    unresolved: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            unresolved[match[1]] = None
        return values.get(match[1], match[0])

    return Substituted(_NAME.sub(value, text), tuple(unresolved))


def substitute_all(texts: Iterable[str], values: Mapping[str, str]) -> tuple[list[str], tuple[str, ...]]:
    """Each text substituted, and every unresolved name once."""
    results = [substitute(text, values) for text in texts]
    names = dict.fromkeys(name for result in results for name in result.unresolved)
    return [result.text for result in results], tuple(names)
