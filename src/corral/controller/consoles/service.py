"""The consoles of the cluster: blocks that nodes send go into rings and wake the readers; `lookup` reads
parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from corral.controller.consoles.lookup import ConsoleLookup, has_ended
from corral.controller.consoles.node_queries import BytesUploads, NodeConsoleQueries
from corral.controller.consoles.rings import TOTAL_BYTES, ConsoleRing, Rings, Run
from corral.controller.consoles.run_list import InstanceRuns, was_given
from corral.controller.consoles.searches import ConsoleSearches
from corral.controller.consoles.span import missing_bytes
from corral.controller.consoles.watchers import InputLines, Watchers
from corral.controller.events.hub import EventHub
from corral.controller.events.wakeup import Wakeup
from corral.controller.instances.instance_commands import SentLine
from corral.controller.instances.run_match import StartOwnership, start_ownership
from corral.controller.sessions.frame_receivers import RefusedReports
from corral.controller.sessions.node_links import NodeLinks
from corral.controller.state.cluster_state import ClusterState
from corral.domain.events import Cursor, Event, EventType
from corral.domain.ids import Incarnation, InstanceId, NodeId, run_nonce
from corral.errors import Code, Rejected
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.wire.frames import CONSOLE_BLOCKS
from corral.wire.v1.instance_pb2 import (
    ConsoleBatch,
    ConsoleBlock,
    ConsoleOutput,
    ConsolePosition,
    ConsoleQueryFailed,
)

PATIENCE_SECONDS: Final = 20.0
"""How long a follower waits for a disconnected or busy node before it continues without that part."""
_LONGEST_ID: Final = 63
_BEYOND: Final = 2**63
"""Above the size of any console."""
_CHANGES: Final = frozenset(type for type in EventType if type.startswith("INSTANCE_"))
Confirm = Callable[[Sequence[ConsolePosition]], None]
"""Sends a node the confirmed positions of its consoles; of each only the latest counts."""


class Consoles:
    """One per term. Rings are rebuilt from the nodes, so nothing here outlives the term."""

    def __init__(
        self,
        *,
        state: ClusterState,
        hub: EventHub,
        links: NodeLinks,
        uploads: BytesUploads,
        clock: Clock,
        entropy: Entropy,
        refused: RefusedReports,
        total_bytes: int = TOTAL_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._refused = refused
        self._state = state
        self._links = links
        self._clock = clock
        self.history: Final = NodeConsoleQueries(links=links, uploads=uploads, entropy=entropy)
        self.rings: Final = Rings(is_live=self._is_live, total_bytes=total_bytes)
        self.runs: Final = InstanceRuns(state=state, history=self.history, rings=self.rings, clock=clock)
        self.lookup: Final = ConsoleLookup(rings=self.rings, history=self.history, links=links)
        self.searches: Final = ConsoleSearches(history=self.history, runs=self.runs, clock=clock)
        self.patience_seconds = patience_seconds
        self.input_lines: Final = InputLines(clock=clock)
        self._watchers: Final = Watchers(clock=clock)
        hub.subscribe(name="consoles", types=_CHANGES, on_event=self._on_change, on_resync=self._on_resync)

    def receive(self, node_id: NodeId, confirm: Confirm, batch: ConsoleBatch) -> None:
        """Receive blocks of a node's consoles, and confirm each console once. Never blocks; readers are woken
        once. A console that is not the node's is confirmed as well, because unconfirmed data uses up the
        node's credit for all others."""
        if len(batch.blocks) > CONSOLE_BLOCKS:
            raise Rejected(
                Code.BAD_REQUEST,
                f"a ConsoleBatch holds at most {CONSOLE_BLOCKS} blocks, not {len(batch.blocks)}",
            )
        reached: dict[Run, int] = {}
        grown: set[InstanceId] = set()
        foreign: list[str] = []
        for block in batch.blocks:
            id, incarnation = block.instance_id, block.incarnation
            if len(id) > _LONGEST_ID or not _possible(block):
                foreign.append(id)
                continue
            run = (InstanceId(id), Incarnation(incarnation))
            if self._belongs(node_id, run, foreign):
                reached[run] = self._take(node_id, run, block)
                grown.add(run[0])
            else:
                reached[run] = block.offset + len(block.data)
        confirm([self._position(run, offset) for run, offset in reached.items()])
        self._watchers.wake(grown)
        if foreign:
            self._refused.count(node_id, "console_batch", subject=foreign[0], number=len(foreign))

    def receive_line(self, node_id: NodeId, line: ConsoleOutput) -> None:
        """Receive a single line of a daemon that sends no batches, and possibly no offsets. The line is text,
        so its length differs from that on the node: after the first line the node's offset is ignored."""
        id = InstanceId(line.instance_id)
        stored = self._state.instances.find(id)
        foreign: list[str] = []
        known = self._belongs(node_id, (id, Incarnation(line.incarnation)), foreign)
        if foreign:
            self._refused.count(node_id, "console_output", subject=id)
        if stored is None or not known or line.offset >= _BEYOND:
            return
        run = (id, Incarnation(line.incarnation) or stored.record.incarnation)
        ring = self.rings.writing(run, begin=line.offset, writer=node_id)
        if ring is None:
            return
        before = ring.memory
        ring.append(
            ring.end, line.line.encode() + b"\n", times=[(ring.end, min(line.timestamp_ms, self._now_ms()))]
        )
        self.rings.grown(ring.memory - before)
        self._watchers.wake((id,))

    def query_failed(self, node_id: NodeId, failed: ConsoleQueryFailed) -> None:
        self.history.failed(node_id, failed)

    def _take(self, node_id: NodeId, run: Run, block: ConsoleBlock) -> int:
        """Store a block; returns the position reached. Blocks of a run without a ring stay on the node."""
        held, nonce = self.rings.find(run), run_nonce(block.nonce)
        if held is not None and nonce and held.nonce not in ("", nonce):
            self.rings.drop(run)  # of another run with this number, which its node has forgotten
        ring = self.rings.writing(run, begin=block.offset, writer=node_id)
        if ring is None:
            return block.offset + len(block.data)
        ring.nonce = nonce or ring.nonce
        before, now = ring.memory, self._now_ms()
        ring.append(
            block.offset,
            block.data,
            times=[(entry.offset, min(entry.timestamp_ms, now)) for entry in block.times]
            or [(block.offset, now)],
            gaps=[missing_bytes(gap) for gap in block.gaps] if block.gaps else (),
        )
        self.rings.grown(ring.memory - before)
        return ring.end

    def _belongs(self, node_id: NodeId, run: Run, foreign: list[str]) -> bool:
        """Whether the run is of a start placed on this node; others are added to `foreign`. The rest of a
        console that the node was writing when the id moved to another node counts, too."""
        id, incarnation = run
        stored = self._state.instances.find(id)
        if stored is not None and (
            start_ownership(stored.record, node_id, incarnation) is StartOwnership.KNOWN
            or was_given(stored.record, node_id, incarnation)
        ):
            return True
        ring = self.rings.find(run)
        if ring is not None and ring.writer == node_id:
            return True
        if stored is None or stored.record.node != node_id:
            foreign.append(id)
        return False

    def _position(self, run: Run, offset: int) -> ConsolePosition:
        ring = self.rings.find(run)
        return ConsolePosition(
            instance_id=run[0],
            incarnation=run[1],
            offset=offset,
            watched=self._watchers.any(run[0]),
            nonce=ring.nonce if ring is not None else "",
        )

    def positions(self, node_id: NodeId) -> list[ConsolePosition]:
        """The received positions of this node's consoles."""
        found = []
        for run, ring in self.rings.written_by(node_id):
            stored = self._state.instances.find(run[0])
            if stored is not None and stored.record.node == node_id:
                found.append(self._position(run, ring.end))
        return found

    async def _on_change(self, event: Event) -> None:
        self._settle(InstanceId(event.subject))

    async def _on_resync(self, head: Cursor) -> None:
        """Events may have been missed: check every instance with a ring."""
        del head
        for id in self.rings.instances():
            self._settle(id)

    def _settle(self, id: InstanceId) -> None:
        """Shrink rings of ended runs, drop those of removed instances, and wake readers."""
        if self._state.instances.find(id) is None:
            self.rings.forget(id)
            self.input_lines.forget(id)
        else:
            self.rings.settle(id)
        self._watchers.wake((id,))

    def _is_live(self, run: Run) -> bool:
        stored = self._state.instances.find(run[0])
        return (
            stored is not None
            and stored.record.incarnation == run[1]
            and not has_ended(stored.record, run[1])
        )

    def add_input_line(self, sent: SentLine, *, id: str | None = None) -> None:
        """Show watchers a line that was written to the instance's input; `id`: what its sender called it by."""
        self.input_lines.add(sent, id=id)
        self._watchers.wake((sent.target.instance,))

    def connected(self, node: NodeId) -> bool:
        """Whether the node can be queried now."""
        return self._links.find(node) is not None

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def ring(self, run: Run) -> ConsoleRing | None:
        return self.rings.find(run)

    @contextlib.contextmanager
    def watching(self, id: InstanceId) -> Iterator[Wakeup]:
        """A wake-up for all changes of this console. Its node sends faster while it is watched."""
        with self._watchers.one_more(id, on_change=self._send_watched) as wakeup:
            yield wakeup

    def _send_watched(self, id: InstanceId) -> None:
        stored = self._state.instances.find(id)
        key = (id, stored.record.incarnation) if stored is not None else None
        ring = self.rings.find(key) if key is not None else None
        if stored is None or key is None or ring is None:
            return
        if not self._watchers.any(id):
            ring.shared.clear()  # made for watchers
        if (link := self._links.find(stored.record.node)) is not None:
            link.confirm_consoles([self._position(key, ring.end)])

    def close(self) -> None:
        """End pending queries to nodes with the term."""
        self.history.close()

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _possible(block: ConsoleBlock) -> bool:
    return block.offset < _BEYOND and all(gap.to_offset < _BEYOND for gap in block.gaps)
