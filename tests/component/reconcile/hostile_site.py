"""A node with instances of its own beside one that claims them, and what the claims are made of."""

from __future__ import annotations

import dataclasses
from typing import Any

from pretend_node import S

from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import node_pb2 as nodes
from corral.wire.v1.link_pb2 import DaemonMessage

VICTIM = "lobby-1"
STATES = [value for value in S.values() if value]
NUMBERS = [0, 1, 1024, 1025, 2048, 2**40, 2**53, 2**63 - 1, 2**64 - 1]
NAMES = [VICTIM, "world-1", "ghost-1", "../../x", "a\0b", "x" * 20_000, ""]
LARGE = "y" * 20_000
PORTION = 50
YEAR_9999 = 253_402_300_799_000


@dataclasses.dataclass
class Site:
    """A node with two instances of its own, and a rogue with one."""

    fleet: Any
    honest: Any
    rogue: Any

    def documents(self) -> dict[tuple[str, str], Any]:
        """Everything in the store but how far the rogue's spool was taken in."""
        found = {}
        for mirror in self.fleet.state._mirrors.values():
            for id, stored in mirror.items():
                if mirror.collection.name != "spools":
                    found[mirror.collection.name, id] = stored.record
        return found

    def moments(self) -> tuple[Any, ...]:
        """What is known beside the store: consoles, orders that wait for an answer, figures of runs."""
        rings = self.fleet.term.http.consoles.rings
        return (
            {run: ring.end for run, ring in rings._rings.items()},
            {id: sending.answered for id, sending in self.fleet.term.instances.dispatcher._sendings.items()},
            self.fleet.term.workload.vitals.find(VICTIM),
        )

    async def taken_in(self) -> None:
        """Everything that the rogue has sent is read, and what is stored of it is."""
        await self.rogue.spool(DaemonMessage(daemon_log_record=nodes.DaemonLogRecord(level="INFO")))
        await eventually(lambda: not self.rogue._spool)

    def refused(self, kind: str) -> float:
        counter = self.fleet.term.nodes.refused._counter
        return counter.labels(node="rogue", kind=kind)._value.get()


def exit_of(code: int = 99) -> wire.ExitStatus:
    return wire.ExitStatus(known=True, code=code, outcome="crashed", summary="forged", ended_at_ms=YEAR_9999)
