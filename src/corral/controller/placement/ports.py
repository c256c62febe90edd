"""Choosing port numbers: by (host address, port, transport), without taking one twice."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence, Set

from corral.controller.state.indexed_mirrors import PortKey, port_keys
from corral.domain.groups import PortProtocol, PortSpec
from corral.domain.instance_records import LeasedPort
from corral.domain.port_sets import PortSet, port_sets


class NoPort(Exception):
    """No number is free for one of the ports; the text says which one and why."""


def choose_ports(
    wanted: Mapping[str, PortSpec],
    *,
    leased: Set[PortKey],
    refused: Set[PortKey],
    last: Sequence[LeasedPort] = (),
) -> tuple[LeasedPort, ...]:
    """For each port its `last` number if that is free, else the lowest free one; fixed ones come first, then those that
    had a number. Ports that are tied together get theirs together, or none does. Raises `NoPort`."""
    taken: set[PortKey] = set()
    chosen: list[LeasedPort] = []
    before = {port.name: port.port for port in last}
    for tied in sorted(port_sets(wanted), key=lambda each: (not each.fixed, each.name not in before)):
        number = _free(tied, before.get(tied.name), leased, refused, taken)
        if number is None:
            raise NoPort(_why(tied, leased, refused))
        for port in tied.members:
            taken.update(port_keys(number + port.offset, port.protocol))
            chosen.append(LeasedPort(name=port.name, port=number + port.offset, protocol=port.protocol))
    return tuple(sorted(chosen, key=lambda port: port.name))


def _free(tied: PortSet, first: int | None, *occupied: Set[PortKey]) -> int | None:
    """The first choice if it is in the range and free, else the lowest number that is."""
    needed = [
        (port.offset, transport)
        for port in tied.members
        for _, transport in port_keys(tied.low, port.protocol)
    ]
    numbers = range(tied.low, tied.high + 1)
    for number in itertools.chain((first,) if first is not None and first in numbers else (), numbers):
        if all((number + offset, kind) not in some for offset, kind in needed for some in occupied):
            return number
    return None


def _why(tied: PortSet, leased: Set[PortKey], refused: Set[PortKey]) -> str:
    first, *others = tied.members
    numbers = {number + port.offset for port in tied.members for number in range(tied.low, tied.high + 1)}
    text = f"port '{tied.name}': "
    text += f"{tied.low}" if tied.low == tied.high else f"each of {tied.low}-{tied.high}"
    text += f" ({first.protocol}"
    text += "".join(f"; '{port.name}' = {tied.name}{port.offset:+d} {port.protocol}" for port in others)
    held = {number for number, _ in leased if number in numbers}
    busy = {number for number, _ in refused if number in numbers} - held
    parts = [f"{len(held)} leased"] if held else []
    parts += [f"{len(busy)} in use by something else on the node"] if busy else []
    return f"{text}) is taken: {', '.join(parts) or 'by this instance itself'}"


def free_share(wanted: Mapping[str, PortSpec], numbers: Sequence[int]) -> float:
    """How much of the scarcest range is free, from 0 to 1; `numbers` are the leased ones, sorted. A tied port goes
    where its range's port goes: that one alone is counted."""
    share = 1.0
    for spec in wanted.values():
        if spec.of is not None:
            continue
        low, high = spec.bounds()
        used = bisect.bisect_right(numbers, high) - bisect.bisect_left(numbers, low)
        per_port = 2 if spec.protocol is PortProtocol.BOTH else 1
        share = min(share, 1.0 - min(1.0, used / ((high - low + 1) * per_port)))
    return share
