"""The ports of a run: chosen by (host address, port, transport); none is leased twice, tied ones come together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from corral.domain.groups.group import PortProtocol, PortSpec
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.groups.port_sets import PortSet, port_sets
from corral.domain.planning.node_usage import PortKey, PortLookup, port_keys


class NoPort(Exception):
    """No number is free for one of the ports; the text names the port and the reason."""

    def __init__(self, text: str, *, port: str = "") -> None:
        super().__init__(text)
        self.port = port


def choose_ports(
    specs: Mapping[str, PortSpec],
    *,
    leased: Set[PortKey],
    refused: Set[PortKey],
    last: Sequence[LeasedPort] = (),
) -> tuple[LeasedPort, ...]:
    """For each port its `last` number if that is free, else the lowest free one; fixed ones come first, then
    those that had a number. Tied ports get their numbers together, or none does. Raises `NoPort`."""
    taken: set[PortKey] = set()
    chosen: list[LeasedPort] = []
    before = {port.name: port.port for port in last}
    for tied in sorted(port_sets(specs), key=lambda each: (not each.fixed, each.name not in before)):
        number = _free(tied, before.get(tied.name), leased, refused, taken)
        if number is None:
            raise NoPort(_why(tied, leased, refused), port=tied.name)
        for port in tied.members:
            taken.update(port_keys(number + port.offset, port.protocol))
            chosen.append(LeasedPort(name=port.name, port=number + port.offset, protocol=port.protocol))
    return tuple(sorted(chosen, key=lambda port: port.name))


def _free(tied: PortSet, first: int | None, *occupied: Set[PortKey]) -> int | None:
    """The first choice if it is in the range and free, else the lowest free number."""
    needed = [
        (port.offset, transport)
        for port in tied.members
        for _, transport in port_keys(tied.low, port.protocol)
    ]
    numbers = range(tied.low, tied.high + 1)
    if first is not None and first in numbers and _next_free(first, needed, occupied) == first:
        return first
    number = tied.low
    while number in numbers:
        found = _next_free(number, needed, occupied)
        if found == number:
            return number
        number = found
    return None


def _next_free(
    number: int, needed: Sequence[tuple[int, PortProtocol]], occupied: Sequence[Set[PortKey]]
) -> int:
    """A number from this one on below which none is free for all that is needed; the same one: it is free."""
    for some in occupied:
        for offset, kind in needed:
            if isinstance(some, PortLookup):
                number = some.next_free(number + offset, kind) - offset
            else:
                while (number + offset, kind) in some:
                    number += 1
    return number


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


def free_share(specs: Mapping[str, PortSpec], leased: Set[PortKey]) -> float:
    """The free share of the scarcest range, from 0 to 1. A tied port follows the port of its range: only that one is
    counted."""
    share = 1.0
    for spec in specs.values():
        if spec.of is not None:
            continue
        low, high = spec.bounds()
        if isinstance(leased, PortLookup):
            used = leased.count(low, high)
        else:
            used = sum(low <= number <= high for number, _ in leased)
        per_port = 2 if spec.protocol is PortProtocol.BOTH else 1
        share = min(share, 1.0 - min(1.0, used / ((high - low + 1) * per_port)))
    return share
