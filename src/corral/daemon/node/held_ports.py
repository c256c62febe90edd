"""The ports that runs of this node hold, from before they start until nothing of them is left.

The kernel alone cannot tell: a workload that shuts down slowly may have closed its socket, and one
that starts slowly has not opened it yet. Asked and changed in one step of the event loop, so two
starts cannot both get a port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from corral.domain.groups import PortProtocol
from corral.domain.instance_records import LeasedPort
from corral.errors import Code, Retryable


class HeldPorts:
    """Ports by their holder, a run's name."""

    def __init__(self) -> None:
        self._holders: dict[tuple[int, str], str] = {}

    def take(self, run: str, ports: Iterable[LeasedPort]) -> None:
        """All of them, or none and PORT_IN_USE. A run that has them already keeps them."""
        wanted = list(ports)
        for port in wanted:
            for key in _keys(port):
                holder = self._holders.get(key, run)
                if holder != run:
                    raise Retryable(
                        Code.PORT_IN_USE,
                        f"port {port.port}/{key[1]} ('{port.name}') is held by the run {holder} on this node",
                        hint="it is free once nothing of that run is left",
                        field="port",
                    )
        for port in wanted:
            for key in _keys(port):
                self._holders[key] = run

    def release(self, run: str) -> None:
        """Idempotent."""
        for key in [key for key, holder in self._holders.items() if holder == run]:
            del self._holders[key]

    def numbers(self) -> list[int]:
        return sorted({number for number, _ in self._holders})


def _keys(port: LeasedPort) -> Iterator[tuple[int, str]]:
    if port.protocol in (PortProtocol.TCP, PortProtocol.BOTH):
        yield port.port, "tcp"
    if port.protocol in (PortProtocol.UDP, PortProtocol.BOTH):
        yield port.port, "udp"
