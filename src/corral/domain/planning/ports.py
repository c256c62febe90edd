"""The ports of a run: chosen by (host address, port, transport); none is leased twice, tied ones come together."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence, Set
from typing import Final

from corral.domain.groups.group import PortProtocol, PortSpec
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.groups.port_sets import PortSet, port_sets
from corral.domain.planning.node_usage import PortKey, PortLookup, port_keys

_JUMPS: Final = 2048
"""After so many comparisons with one number after the other, all numbers are compared at once."""
_BYTES: Final = 65_536 // 8
_SHOWN: Final = 3
"""The most tied ports that are named."""


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
    passed: dict[tuple[int, PortProtocol], int] = {}
    """By the beginning of a range and the transport, the last number that a port alone got: those below are taken."""
    before = {port.name: port.port for port in last}
    for tied in sorted(port_sets(specs), key=lambda each: (not each.fixed, each.name not in before)):
        alone = (tied.low, tied.members[0].protocol) if len(tied.members) == 1 else None
        begin = passed.get(alone, tied.low) if alone is not None else tied.low
        number = _free(tied, begin, before.get(tied.name), leased, refused, taken)
        if number is None:
            raise NoPort(_why(tied, leased, refused), port=tied.name)
        if alone is not None and before.get(tied.name) is None:
            passed[alone] = number
        for port in tied.members:
            taken.update(port_keys(number + port.offset, port.protocol))
            chosen.append(LeasedPort(name=port.name, port=number + port.offset, protocol=port.protocol))
    return tuple(sorted(chosen, key=lambda port: port.name))


def _free(tied: PortSet, begin: int, first: int | None, *occupied: Set[PortKey]) -> int | None:
    """The first choice if it is in the range and free, else the lowest free number from `begin` on."""
    needed = [
        (port.offset, transport)
        for port in tied.members
        for _, transport in port_keys(tied.low, port.protocol)
    ]
    numbers = range(tied.low, tied.high + 1)
    if first is not None and first in numbers and _next_free(first, needed, occupied) == first:
        return first
    number = begin
    for _ in range(_JUMPS // len(needed)):
        if number not in numbers:
            return None
        found = _next_free(number, needed, occupied)
        if found == number:
            return number
        number = found
    return _lowest_free(range(number, tied.high + 1), needed, occupied)


def _lowest_free(
    numbers: range, needed: Sequence[tuple[int, PortProtocol]], occupied: Sequence[Set[PortKey]]
) -> int | None:
    """The lowest of the numbers that is free for all that is needed. Every number is a bit, so that many tied ports among
    many leased ones cost no more than few."""
    taken = {kind: bytearray(_BYTES) for kind in (PortProtocol.TCP, PortProtocol.UDP)}
    for number, kind in itertools.chain.from_iterable(occupied):
        taken[kind][number // 8] |= 1 << number % 8
    bits = {kind: int.from_bytes(found, "little") for kind, found in taken.items()}
    blocked = 0
    for offset, kind in needed:
        blocked |= bits[kind] >> offset if offset >= 0 else bits[kind] << -offset
    free = (1 << numbers.stop) - 1 & ~((1 << numbers.start) - 1) & ~blocked
    return (free & -free).bit_length() - 1 if free else None


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
    text = f"port '{tied.name}': "
    text += f"{tied.low}" if tied.low == tied.high else f"each of {tied.low}-{tied.high}"
    text += f" ({first.protocol}"
    for port in others[:_SHOWN]:
        text += f"; '{port.name}' = {tied.name}{port.offset:+d} {port.protocol}"
    text += f"; and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    held = _within(tied, leased)
    busy = _within(tied, refused) - held
    parts = [f"{len(held)} leased"] if held else []
    parts += [f"{len(busy)} in use by something else on the node"] if busy else []
    return f"{text}) is taken: {', '.join(parts) or 'by this instance itself'}"


def _within(tied: PortSet, keys: Set[PortKey]) -> set[int]:
    """The numbers among these that some port of the set could have."""
    offsets = sorted({port.offset for port in tied.members})
    reach = tied.high - tied.low
    found = set()
    for number, _ in keys:
        at = bisect.bisect_left(offsets, number - tied.high)  # the first offset that reaches so high
        if at < len(offsets) and offsets[at] <= number - tied.high + reach:
            found.add(number)
    return found


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
