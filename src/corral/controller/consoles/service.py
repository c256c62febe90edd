"""Every console of the cluster: takes in what nodes send, and finds any part of any of them."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import msgspec

from corral.controller.consoles.node_queries import ANSWER_BYTES, BytesUploads, NodeHistory
from corral.controller.consoles.pages import ConsolePage, check_pattern, matches_of, page_of, within
from corral.controller.consoles.rings import TOTAL_BYTES, ConsoleRing, Rings, Run
from corral.controller.consoles.run_list import RunBook, node_of, was_given
from corral.controller.consoles.span import EMPTY, Gap, Stretch, told_gap
from corral.controller.consoles.watchers import Echoes, Watchers
from corral.controller.events.hub import EventHub
from corral.controller.events.wakeup import Wakeup
from corral.controller.instances.reports import Standing, standing
from corral.controller.sessions.frame_receivers import RefusedReports
from corral.controller.sessions.node_links import NodeLinks
from corral.controller.state.cluster_state import ClusterState
from corral.domain.events import Cursor, Event, EventType
from corral.domain.ids import Incarnation, InstanceId, NodeId, run_nonce
from corral.domain.instance_records import InstanceRecord, live
from corral.domain.instance_states import InstanceState
from corral.errors import Code, CorralError, Rejected
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.wire.frames import CONSOLE_BLOCKS
from corral.wire.v1.instance_pb2 import (
    ConsoleAck,
    ConsoleBatch,
    ConsoleBlock,
    ConsoleOutput,
    ConsolePosition,
    ConsoleQuery,
    ConsoleQueryFailed,
)
from corral.wire.v1.link_pb2 import ControllerMessage

PAGE_BYTES: Final = 256 * 1024
PATIENCE_SECONDS: Final = 20.0
"""So long a follower waits for a node that is away or busy, before it goes on without what lies there."""
_LONGEST_ID: Final = 63
_BEYOND: Final = 2**63
"""No console has so many bytes."""
_CHANGES: Final = frozenset(type for type in EventType if type.startswith("INSTANCE_"))
_NOT_YET: Final = frozenset({InstanceState.SCHEDULED, InstanceState.PREPARING})
Confirm = Callable[[ConsolePosition], None]
"""Tells a node how far its console is here; only the latest value counts."""


class Consoles:
    """One per term. Rings are rebuilt from the nodes, so nothing here outlives it."""

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
        self.history: Final = NodeHistory(links=links, uploads=uploads, entropy=entropy)
        self.rings: Final = Rings(is_live=self._is_live, total_bytes=total_bytes)
        self.runs: Final = RunBook(state=state, history=self.history, rings=self.rings, clock=clock)
        self.patience_seconds = patience_seconds
        self.echoes: Final = Echoes(clock=clock)
        self._watchers: Final = Watchers()
        hub.subscribe(name="consoles", types=_CHANGES, on_event=self._on_change, on_resync=self._on_resync)

    # what comes from the nodes

    def receive(self, node_id: NodeId, confirm: Confirm, batch: ConsoleBatch) -> None:
        """Take blocks of a node's consoles, and confirm each console once. Never blocks; readers are woken once. One
        that is not the node's is confirmed as well, since what is not uses up the node's credit for all the others."""
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
        for run, offset in reached.items():
            confirm(self._position(run, offset))
        for grew in grown:
            self._watchers.wake(grew)
        if foreign:
            self._refused.count(node_id, "console_batch", subject=foreign[0], number=len(foreign))

    def receive_line(self, node_id: NodeId, line: ConsoleOutput) -> None:
        """A single line of a daemon that knows no batches, and perhaps no offsets either. It comes as text,
        so its length is not what it was on the node: where it begins there does not matter after the first."""
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
        self._watchers.wake(id)

    def query_failed(self, node_id: NodeId, failed: ConsoleQueryFailed) -> None:
        self.history.failed(node_id, failed)

    def _take(self, node_id: NodeId, run: Run, block: ConsoleBlock) -> int:
        """Store a block; how far the console is here. That of a run whose ring is not kept stays on the node."""
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
            gaps=[told_gap(gap) for gap in block.gaps] if block.gaps else (),
        )
        self.rings.grown(ring.memory - before)
        return ring.end

    def _belongs(self, node_id: NodeId, run: Run, foreign: list[str]) -> bool:
        """A node speaks for the starts that are placed on it, and for no other, which are noted in `foreign`; the
        rest of a console that it was writing when the id moved on is its own, too."""
        id, incarnation = run
        stored = self._state.instances.find(id)
        if stored is not None and (
            standing(stored.record, node_id, incarnation) is Standing.KNOWN
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
        """What of this node's consoles is here already."""
        found = []
        for stored in self._state.instances.of_node(node_id):
            id = stored.record.id
            for incarnation in self.rings.runs(id):
                ring = self.rings.find((id, incarnation))
                if ring is not None and ring.writer == node_id:
                    found.append(self._position((id, incarnation), ring.end))
        return found

    async def _on_change(self, event: Event) -> None:
        self._settle(InstanceId(event.subject))

    async def _on_resync(self, head: Cursor) -> None:
        """Events may have been missed: look at every instance we hold something of."""
        del head
        for id in self.rings.instances():
            self._settle(id)

    def _settle(self, id: InstanceId) -> None:
        """Rings of ended runs shrink, those of removed instances go, and readers look again."""
        if self._state.instances.find(id) is None:
            self.rings.forget(id)
            self.echoes.forget(id)
        else:
            self.rings.settle(id)
        self._watchers.wake(id)

    def _is_live(self, run: Run) -> bool:
        stored = self._state.instances.find(run[0])
        return (
            stored is not None
            and stored.record.incarnation == run[1]
            and not has_ended(stored.record, run[1])
        )

    # what readers ask

    async def page(
        self,
        record: InstanceRecord,
        incarnation: Incarnation,
        *,
        after: int | None,
        limit: int,
        newest: bool,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
    ) -> ConsolePage:
        """Lines of a run, from wherever they are. `after` None: from the oldest that is kept. Between two times: those
        that came then; `newest` is for a console as a whole."""
        if newest:
            stretch, after = await self._newest(record, incarnation, limit)
        elif since is not None or until is not None:
            stretch = await self._timed(record, incarnation, after or 0, since=since, until=until)
            after = None if since is not None else after
        else:
            stretch = await self.stretch(record, incarnation, after or 0, max_bytes=PAGE_BYTES)
        final = has_ended(record, incarnation) and stretch.next_offset >= stretch.end_offset
        page = page_of(stretch, incarnation=incarnation, after=after, limit=limit, final=final)
        return within(page, since=since, until=until)

    async def _timed(
        self,
        record: InstanceRecord,
        incarnation: Incarnation,
        after: int,
        *,
        since: dt.datetime | None,
        until: dt.datetime | None,
    ) -> Stretch:
        """About what came between two times: whoever has it finds it by its index, and lines are compared afterwards."""
        ring = self.rings.find((record.id, incarnation))
        if ring is not None:
            begin = ring.since(_milliseconds(since)) if since is not None else 0
            if begin is not None and ring.reaches(max(after, begin)):
                return ring.stretch(max(after, begin), max_bytes=PAGE_BYTES)
        if ring is None and never_ran(record, incarnation):
            return EMPTY
        query = ConsoleQuery(
            instance_id=record.id,
            incarnation=incarnation,
            from_offset=after,
            max_bytes=PAGE_BYTES,
            since_ms=_milliseconds(since) if since is not None else 0,
            until_ms=_milliseconds(until) if until is not None else 0,
        )
        return await self.history.ask(node_of(record, incarnation), query)

    async def stretch(
        self, record: InstanceRecord, incarnation: Incarnation, after: int, *, max_bytes: int
    ) -> Stretch:
        """Bytes of a run from an offset: out of the ring when it reaches there, else from the node. Of a daemon that
        cannot be asked what is in the ring, and before that a gap."""
        ring = self.rings.find((record.id, incarnation))
        if ring is not None and ring.reaches(after):
            return ring.stretch(after, max_bytes=max_bytes)
        if ring is None and never_ran(record, incarnation):
            return EMPTY
        try:
            return await self.from_node(record, incarnation, after, max_bytes=max_bytes)
        except CorralError as error:
            ring = self.rings.find((record.id, incarnation))
            if error.code is not Code.NOT_SUPPORTED or ring is None or after >= ring.begin:
                raise
            held = ring.stretch(ring.begin, max_bytes=max_bytes)
            gap = Gap(after, ring.begin, error.message)
            return msgspec.structs.replace(held, gaps=(gap, *held.gaps))

    async def from_node(
        self, record: InstanceRecord, incarnation: Incarnation, after: int, *, max_bytes: int
    ) -> Stretch:
        """The same, from the node alone. Raises what `NodeHistory.ask` raises."""
        query = ConsoleQuery(
            instance_id=record.id, incarnation=incarnation, from_offset=after, max_bytes=max_bytes
        )
        return await self.history.ask(node_of(record, incarnation), query)

    async def _newest(
        self, record: InstanceRecord, incarnation: Incarnation, limit: int
    ) -> tuple[Stretch, int | None]:
        """The stretch that holds the last lines, and where they begin in it."""
        ring = self.rings.find((record.id, incarnation))
        if ring is not None:
            begin = ring.newest(limit)
            if begin > ring.begin or ring.begin == 0 or not self.connected(node_of(record, incarnation)):
                return ring.stretch(begin, max_bytes=ANSWER_BYTES), begin
        elif never_ran(record, incarnation):
            return EMPTY, None
        query = ConsoleQuery(
            instance_id=record.id, incarnation=incarnation, max_bytes=ANSWER_BYTES, newest=True
        )
        try:
            return _last_lines(await self.history.ask(node_of(record, incarnation), query), limit)
        except CorralError:
            ring = self.rings.find((record.id, incarnation))
            if ring is None:
                raise
            begin = ring.newest(limit)
            return ring.stretch(begin, max_bytes=ANSWER_BYTES), begin

    async def search(
        self, record: InstanceRecord, incarnation: Incarnation, *, pattern: str, after: int, limit: int
    ) -> ConsolePage:
        """Lines that match, looked for on the node. INVALID_PATTERN without asking it."""
        query = ConsoleQuery(
            instance_id=record.id,
            incarnation=incarnation,
            from_offset=after,
            pattern=check_pattern(pattern),
            max_lines=limit,
            max_bytes=ANSWER_BYTES,
        )
        if never_ran(record, incarnation):
            return matches_of(EMPTY, incarnation=incarnation, limit=limit)
        found = await self.history.ask(node_of(record, incarnation), query)
        return matches_of(found, incarnation=incarnation, limit=limit)

    async def everything(
        self, record: InstanceRecord, incarnation: Incarnation, *, after: int
    ) -> AsyncIterator[bytes]:
        """All bytes up to where the console ends now, piece by piece; lost ones are left out."""
        end: int | None = None
        while end is None or after < end:
            stretch = await self.stretch(record, incarnation, after, max_bytes=ANSWER_BYTES)
            end = stretch.end_offset if end is None else end
            for piece in stretch.pieces:
                yield piece.data[: max(0, end - piece.offset)]
            if stretch.next_offset <= after:
                return
            after = stretch.next_offset

    def echo(self, id: InstanceId, *, line: str, by: str) -> None:
        """Show a line that the instance's input has taken to those who watch."""
        self.echoes.add(id, line=line, by=by)
        self._watchers.wake(id)

    def connected(self, node: NodeId) -> bool:
        """Whether the node can be asked now."""
        return self._links.find(node) is not None

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def ring(self, run: Run) -> ConsoleRing | None:
        return self.rings.find(run)

    @contextlib.contextmanager
    def watching(self, id: InstanceId) -> Iterator[Wakeup]:
        """A wake-up for everything about this console. Its node sends faster while somebody watches."""
        with self._watchers.one_more(id, on_change=self._tell_watched) as wakeup:
            yield wakeup

    def _tell_watched(self, id: InstanceId) -> None:
        stored = self._state.instances.find(id)
        link = self._links.find(stored.record.node) if stored else None
        if stored is None or link is None:
            return
        incarnation = stored.record.incarnation
        ring = self.rings.find((id, incarnation))
        if ring is not None:
            position = self._position((id, incarnation), ring.end)
            link.outbox.replace(
                f"console:{id}:{incarnation}", ControllerMessage(console_ack=ConsoleAck(positions=[position]))
            )

    def close(self) -> None:
        """The term is over: whoever waits for a node waits in vain."""
        self.history.close()

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _milliseconds(time: dt.datetime) -> int:
    return max(1, int(time.timestamp() * 1000))


def _possible(block: ConsoleBlock) -> bool:
    return block.offset < _BEYOND and all(gap.to_offset < _BEYOND for gap in block.gaps)


def has_ended(record: InstanceRecord, incarnation: Incarnation) -> bool:
    """Whether nothing is written to this console any more."""
    return record.incarnation != incarnation or not live(record.state)


def never_ran(record: InstanceRecord, incarnation: Incarnation) -> bool:
    """Whether this run has no console yet, and nobody needs to be asked for it."""
    if record.incarnation != incarnation:
        return False
    started = record.started_at is not None or record.console_end > 0
    return record.state in _NOT_YET or not (started or live(record.state))


def _last_lines(stretch: Stretch, limit: int) -> tuple[Stretch, int | None]:
    """Cut a stretch from a node's end down to its last lines."""
    ring = ConsoleRing(begin=stretch.pieces[0].offset if stretch.pieces else 0, capacity=2 * ANSWER_BYTES)
    for piece in stretch.pieces:
        ring.append(piece.offset, piece.data, times=stretch.times, gaps=stretch.gaps)
    return ring.stretch(ring.newest(limit), max_bytes=2 * ANSWER_BYTES), None
