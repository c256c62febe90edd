"""Choosing port numbers: by (host address, port, transport), without taking one twice."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence, Set

from corral.controller.fleet_mirrors import PortKey, port_keys
from corral.domain.groups import PortProtocol, PortSpec
from corral.domain.instance_records import LeasedPort


class NoPort(Exception):
    """No number is free for one of the ports; the text says which one and why."""


def choose_ports(
    wanted: Mapping[str, PortSpec], *, leased: Set[PortKey], refused: Set[PortKey]
) -> tuple[LeasedPort, ...]:
    """The lowest free number for each port, fixed ones first. Raises `NoPort`."""
    taken: set[PortKey] = set()
    chosen: list[LeasedPort] = []
    for name, spec in sorted(wanted.items(), key=lambda item: (item[1].port is None, item[0])):
        number = _lowest_free(spec, leased, refused, taken)
        if number is None:
            raise NoPort(_why(name, spec, leased, refused))
        taken.update(port_keys(number, spec.protocol))
        chosen.append(LeasedPort(name=name, port=number, protocol=spec.protocol))
    return tuple(sorted(chosen, key=lambda port: port.name))


def _lowest_free(spec: PortSpec, *occupied: Set[PortKey]) -> int | None:
    low, high = spec.bounds()
    transports = [transport for _, transport in port_keys(low, spec.protocol)]
    for number in range(low, high + 1):
        if all((number, transport) not in some for transport in transports for some in occupied):
            return number
    return None


def _why(name: str, spec: PortSpec, leased: Set[PortKey], refused: Set[PortKey]) -> str:
    low, high = spec.bounds()
    numbers = range(low, high + 1)
    text = f"port '{name}': {low}" if low == high else f"port '{name}': each of {low}-{high}"
    held = {number for number, _ in leased if number in numbers}
    busy = {number for number, _ in refused if number in numbers} - held
    parts = [f"{len(held)} leased"] if held else []
    parts += [f"{len(busy)} in use by somebody else"] if busy else []
    return f"{text} ({spec.protocol}) is taken: {', '.join(parts) or 'by this instance itself'}"


def free_share(wanted: Mapping[str, PortSpec], numbers: Sequence[int]) -> float:
    """How much of the scarcest range is free, from 0 to 1; `numbers` are the leased ones, sorted."""
    share = 1.0
    for spec in wanted.values():
        low, high = spec.bounds()
        used = bisect.bisect_right(numbers, high) - bisect.bisect_left(numbers, low)
        per_port = 2 if spec.protocol is PortProtocol.BOTH else 1
        share = min(share, 1.0 - min(1.0, used / ((high - low + 1) * per_port)))
    return share
