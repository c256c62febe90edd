"""Sets of ports: those with `of` have the number of another port plus an `offset`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from corral.domain.groups.group import PortProtocol, PortSpec
from corral.domain.ids import group_name
from corral.domain.spec import invalid
from corral.errors import Code, unknown_choice

_LAST_PORT = 65_535


class TiedPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port of a set: its number is that of the set's first port plus `offset`."""

    name: str
    offset: int
    protocol: PortProtocol


class PortSet(msgspec.Struct, frozen=True, kw_only=True):
    """A port with a number or a range of its own, and all that are tied to it: leased together or not at all."""

    name: str
    low: int
    high: int
    fixed: bool
    members: tuple[TiedPort, ...]
    """The first is the port itself, with offset 0."""


def port_sets(ports: Mapping[str, PortSpec]) -> list[PortSet]:
    """By name. The ports must have passed `check_ports`."""
    members: dict[str, list[TiedPort]] = {name: [] for name, spec in ports.items() if spec.of is None}
    for name, spec in sorted(ports.items()):
        root, offset = _root(ports, name)
        members[root].append(TiedPort(name=name, offset=offset, protocol=spec.protocol))
    return [_set(name, ports[name], found) for name, found in sorted(members.items())]


def _set(name: str, spec: PortSpec, found: list[TiedPort]) -> PortSet:
    low, high = spec.bounds()
    own_first = tuple(sorted(found, key=lambda tied: tied.name != name))
    return PortSet(name=name, low=low, high=high, fixed=spec.port is not None, members=own_first)


def _root(ports: Mapping[str, PortSpec], name: str) -> tuple[str, int]:
    """The port with a number of its own that this one is tied to, and by how much."""
    offset = 0
    while (tied := ports[name]).of is not None:
        offset += tied.offset
        name = tied.of
    return name, offset


def check_ports(ports: Mapping[str, PortSpec]) -> None:
    """Refuse ports that no instance could ever have, with the field."""
    for name, spec in ports.items():
        field = f"ports/{name[:80]}"
        group_name(name, field=field)
        if sum(each is not None for each in (spec.range, spec.port, spec.of)) != 1:
            raise invalid(
                field,
                "a port is a range, a number, or tied to another port",
                '{"range": [30000, 30100]}, {"port": 25565} or {"of": "primary", "offset": 1}',
            )
        if spec.of is not None:
            _check_tie(ports, name, field)
        elif spec.offset:
            raise invalid(f"{field}/offset", "an offset needs the port that it counts from", "add 'of'")
        elif spec.bounds()[0] > spec.bounds()[1]:
            low, high = spec.bounds()
            raise invalid(f"{field}/range", f"{low} is above {high}", "the lower bound comes first")
    sets = port_sets(ports)
    for each in sets:
        _check_set(each)
    _check_fixed([each for each in sets if each.low == each.high])


def _check_tie(ports: Mapping[str, PortSpec], name: str, field: str) -> None:
    """Check that the chain of `of` ends at a port of this group with a number of its own."""
    passed = [name]
    while (of := ports[passed[-1]].of) is not None:
        if of not in ports:
            others = [other for other in ports if other != name]
            if passed[1:] or not others:
                raise invalid(f"{field}/of", f"the group has no port '{of[:80]}'", "add it to ports")
            raise unknown_choice("port", of[:80], others, code=Code.INVALID_FIELD, field=f"{field}/of")
        passed.append(of)
        if of in passed[:-1]:
            circle = " -> ".join(f"'{each}'" for each in passed[:10])
            raise invalid(f"{field}/of", f"it goes round in a circle: {circle}", "give one of them a range")


def _check_set(tied: PortSet) -> None:
    taken: dict[tuple[int, PortProtocol], str] = {}
    for port in tied.members:
        field = f"ports/{port.name[:80]}/offset"
        if tied.low + port.offset < 1 or tied.high + port.offset > _LAST_PORT:
            raise invalid(field, f"it leaves the ports from 1 to {_LAST_PORT}", f"move '{tied.name}'")
        for protocol in _protocols(port):
            other = taken.setdefault((port.offset, protocol), port.name)
            if other != port.name:
                raise invalid(
                    field,
                    f"it is always the same {protocol} port as '{other[:80]}'",
                    "give it another offset, or each of the two a protocol of its own",
                )


def _check_fixed(sets: Iterable[PortSet]) -> None:
    """Refuse a number that two of these ports have: an instance could never have both."""
    taken: dict[tuple[int, PortProtocol], str] = {}
    for each in sets:
        for port in each.members:
            number = each.low + port.offset
            for protocol in _protocols(port):
                other = taken.setdefault((number, protocol), port.name)
                if other != port.name:
                    raise invalid(
                        f"ports/{port.name[:80]}",
                        f"it is the {protocol} port {number}, and so is '{other[:80]}'",
                        "give one of them another number, or each of the two a protocol of its own",
                    )


def _protocols(port: TiedPort) -> tuple[PortProtocol, ...]:
    both = port.protocol is PortProtocol.BOTH
    return (PortProtocol.TCP, PortProtocol.UDP) if both else (port.protocol,)
