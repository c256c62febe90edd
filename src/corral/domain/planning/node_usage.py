"""What is reserved on a node: sums and leased ports, kept while reservations come and go.

Everything that a start asks of them (is a port leased, which is the next free one, how many of a range are leased) is
a search, however many runs a node has.
"""

from __future__ import annotations

import abc
import bisect
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import Reservation
from corral.domain.number_runs import NumberRuns

PortKey = tuple[int, PortProtocol]
"""A port of one transport: TCP or UDP, never BOTH."""

_NANO: Final = 1_000_000_000
"""CPU is summed up in whole parts: a sum of fractions that come and go drifts."""


@functools.lru_cache(maxsize=16_384)
def port_keys(port: int, protocol: PortProtocol) -> tuple[PortKey, ...]:
    """The transports that a port occupies."""
    if protocol is PortProtocol.BOTH:
        return (port, PortProtocol.TCP), (port, PortProtocol.UDP)
    return ((port, protocol),)


class PortLookup(Set[PortKey]):
    """Occupied ports, and what placement asks of them."""

    @abc.abstractmethod
    def next_free(self, number: int, kind: PortProtocol) -> int:
        """The lowest number from this one on that is free in this transport."""

    @abc.abstractmethod
    def count(self, low: int, high: int) -> int:
        """How many ports with numbers from `low` to `high` are occupied; each transport counts."""


class LeasedPorts(PortLookup):
    """The ports of some reservations. One that several name is one port, and free when none is left."""

    def __init__(self) -> None:
        self._leases: dict[PortKey, int] = {}
        self._runs = {PortProtocol.TCP: NumberRuns(), PortProtocol.UDP: NumberRuns()}
        self._numbers: list[int] = []
        """Sorted; a number that is occupied in both transports is listed twice."""

    def __contains__(self, key: object) -> bool:
        return key in self._leases

    def __iter__(self) -> Iterator[PortKey]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def leases(self, key: PortKey) -> int:
        return self._leases.get(key, 0)

    def next_free(self, number: int, kind: PortProtocol) -> int:
        return self._runs[kind].next_free(number)

    def count(self, low: int, high: int) -> int:
        return bisect.bisect_right(self._numbers, high) - bisect.bisect_left(self._numbers, low)

    def add(self, key: PortKey) -> None:
        leases = self._leases.get(key, 0)
        self._leases[key] = leases + 1
        if not leases:
            number, kind = key
            self._runs[kind].add(number)
            bisect.insort(self._numbers, number)

    def remove(self, key: PortKey) -> None:
        leases = self._leases[key] - 1
        if leases:
            self._leases[key] = leases
            return
        del self._leases[key]
        number, kind = key
        self._runs[kind].discard(number)
        del self._numbers[bisect.bisect_left(self._numbers, number)]


class ChangedPorts(PortLookup):
    """Leased ports without some that a transaction releases, with some that it leases."""

    def __init__(self, stored: PortLookup, added: LeasedPorts, removed: LeasedPorts) -> None:
        self._stored = stored
        self._added = added
        self._freed = {key for key in removed if _leases(stored, key) <= removed.leases(key)}

    def __contains__(self, key: object) -> bool:
        return key in self._added or (key in self._stored and key not in self._freed)

    def __iter__(self) -> Iterator[PortKey]:
        return itertools.chain(
            (key for key in self._stored if key not in self._freed and key not in self._added), self._added
        )

    def __len__(self) -> int:
        return len(self._stored) + self._change(self._added, self._freed)

    def next_free(self, number: int, kind: PortProtocol) -> int:
        found = _free_in_all((self._stored, self._added), number, kind)
        freed = (n for n, k in self._freed if k is kind and number <= n < found and (n, k) not in self._added)
        return min(freed, default=found)

    def count(self, low: int, high: int) -> int:
        added = {key for key in self._added if low <= key[0] <= high}
        freed = {key for key in self._freed if low <= key[0] <= high}
        return self._stored.count(low, high) + self._change(added, freed)

    def _change(self, added: Iterable[PortKey], freed: Iterable[PortKey]) -> int:
        return sum(key not in self._stored for key in added) - sum(key not in self._added for key in freed)


def _leases(ports: PortLookup, key: PortKey) -> int:
    return ports.leases(key) if isinstance(ports, LeasedPorts) else int(key in ports)


class SharedPorts(PortLookup):
    """The leased ports of several nodes with one address."""

    def __init__(self, parts: Sequence[PortLookup]) -> None:
        self._parts = parts

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._parts)

    def __iter__(self) -> Iterator[PortKey]:
        for at, part in enumerate(self._parts):
            yield from (key for key in part if not any(key in before for before in self._parts[:at]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def next_free(self, number: int, kind: PortProtocol) -> int:
        return _free_in_all(self._parts, number, kind)

    def count(self, low: int, high: int) -> int:
        """Ports that two nodes lease, because they had two addresses before, count twice."""
        return sum(part.count(low, high) for part in self._parts)


def _free_in_all(parts: Sequence[PortLookup], number: int, kind: PortProtocol) -> int:
    while (found := max(part.next_free(number, kind) for part in parts)) != number:
        number = found
    return number


class Usage:
    """The sums of a node's reservations."""

    def __init__(self) -> None:
        self.memory_mb = 0
        self.runs = 0
        self.ports: PortLookup = LeasedPorts()
        self._nano_cpus = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self._sums() == other._sums() and self.ports == other.ports

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _sums(self) -> tuple[int, int, int]:
        return self.memory_mb, self.runs, self._nano_cpus

    @property
    def cpu(self) -> float:
        return self._nano_cpus / _NANO

    def changed_by(self, added: ReservedSums, removed: ReservedSums) -> Usage:
        """The sums with some reservations more and some less; this object stays as it is."""
        found = Usage()
        found.memory_mb = self.memory_mb + added.memory_mb - removed.memory_mb
        found.runs = self.runs + added.runs - removed.runs
        found._nano_cpus = self._nano_cpus + added._nano_cpus - removed._nano_cpus
        found.ports = ChangedPorts(self.ports, added.leased, removed.leased)
        return found


class ReservedSums(Usage):
    """Sums that follow the reservations."""

    def __init__(self) -> None:
        super().__init__()
        self.ports = self.leased = LeasedPorts()

    def add(self, run: Reservation) -> None:
        self._count(run, 1)
        for key in _keys(run):
            self.leased.add(key)

    def remove(self, run: Reservation) -> None:
        """Take out a reservation that was added."""
        self._count(run, -1)
        for key in _keys(run):
            self.leased.remove(key)

    def _count(self, run: Reservation, by: int) -> None:
        self.memory_mb += by * run.memory_mb
        self.runs += by
        self._nano_cpus += by * round(run.cpu * _NANO)


def _keys(run: Reservation) -> Iterator[PortKey]:
    return (key for port in run.ports for key in port_keys(port.port, port.protocol))


def usage_of(runs: Iterable[Reservation]) -> ReservedSums:
    """The sums of these reservations."""
    sums = ReservedSums()
    for run in runs:
        sums.add(run)
    return sums
