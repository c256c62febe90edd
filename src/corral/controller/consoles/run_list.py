"""The runs of an instance: their numbers, nodes and exits.

The record knows the last run of each start, and crashes name others. All others are known only to the nodes,
which keep a run for a while after its end and are queried.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.controller.consoles.node_queries import NodeConsoleQueries
from corral.controller.consoles.rings import Rings
from corral.controller.instances.report_values import exit_record
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import EARLIER_STARTS, EarlierStart, ExitRecord, InstanceRecord
from corral.domain.ids import RESTARTS_PER_START, Incarnation, NodeId, run_nonce, start_number
from corral.domain.instance_states import InstanceState
from corral.domain.node_claims import reported_time
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.clock import Clock
from corral.wire.v1.instance_pb2 import ConsoleQuery, InstanceRun

_MAX_OFFSET: Final = 2**63 - 1
_MAX_HASH: Final = 128
_PAGE: Final = 200
_PAGES: Final = 20
_OVER: Final = (InstanceState.STOPPED.value, InstanceState.CRASHED.value)


class Start(msgspec.Struct, frozen=True):
    """A start that a node was given: its runs are numbered from `first` on, and `last` is the last known one."""

    node: NodeId
    first: Incarnation
    last: Incarnation


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts of one run; None for unknown ones."""

    incarnation: int
    node: str
    state: str
    plan_hash: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    exit: ExitRecord | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    nonce: str = ""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """Runs, the newest first. `notes` names the nodes whose runs may be missing."""

    runs: list[RunFacts]
    more: bool
    notes: list[str]


class NextRun(msgspec.Struct, frozen=True, kw_only=True):
    """The next readable run after another, and the runs skipped in between."""

    incarnation: Incarnation
    node: NodeId
    passed_over: str = ""
    """The skipped runs as text; empty for none."""
    end_offset: int | None = None
    """The end of its console when the node was queried."""


def starts_of(record: InstanceRecord) -> list[Start]:
    """The starts that the record knows, the oldest first."""
    known = [(start.node, start.incarnation) for start in record.earlier]
    return [
        Start(node, Incarnation(start_number(last) * RESTARTS_PER_START), last)
        for node, last in [*known, (record.node, record.incarnation)]
    ]


def node_of(record: InstanceRecord, incarnation: int) -> NodeId:
    """The node that has a run; for a start that is no longer known, the present node as a guess."""
    for start in starts_of(record):
        if start_number(start.first) == start_number(incarnation):
            return start.node
    return record.node


def was_given(record: InstanceRecord, node: NodeId, incarnation: int) -> bool:
    """Whether the record assigns this run to a start that this node was given."""
    return any(start.node == node and start.first <= incarnation <= start.last for start in starts_of(record))


def known_end(record: InstanceRecord, incarnation: int) -> int | None:
    """The end of a run's console, if reported."""
    if incarnation == record.incarnation:
        return record.console_end or None
    start = _earlier(record, incarnation)
    return start.console_end or None if start is not None else None


def _earlier(record: InstanceRecord, incarnation: int) -> EarlierStart | None:
    return next((start for start in record.earlier if start.incarnation == incarnation), None)


class InstanceRuns:
    def __init__(
        self, *, state: ClusterState, history: NodeConsoleQueries, rings: Rings, clock: Clock
    ) -> None:
        self._state = state
        self._history = history
        self._rings = rings
        self._clock = clock

    async def following(self, record: InstanceRecord, after: Incarnation) -> NextRun:
        """The run after this one, with queries to its nodes. Raises what `NodeConsoleQueries.runs` raises."""
        for start in [*_forgotten_starts(record, after), *starts_of(record)]:
            low = max(after + 1, start.first)
            if low > start.last or low == record.incarnation:
                continue
            query = ConsoleQuery(
                instance_id=record.id, after_run=low - 1, before_run=start.last + 1, max_lines=1
            )
            runs, _ = await self._history.runs(start.node, query)
            if runs and low <= runs[0].incarnation <= start.last:
                found = Incarnation(runs[0].incarnation)
                over = found != record.incarnation and runs[0].ended_at_ms > 0
                end = min(runs[0].end_offset, _MAX_OFFSET) if over else None
                return _step(record, after, found, end_offset=end)
        return _step(record, after, record.incarnation)

    def held(self, record: InstanceRecord, after: Incarnation) -> NextRun:
        """The next run of which the controller holds something; no node is queried."""
        given = starts_of(record)
        here = (
            run
            for run in self._rings.runs(record.id)
            if run > after and any(start.first <= run <= start.last for start in given)
        )
        return _step(record, after, min(here, default=record.incarnation))

    def exit_of(self, record: InstanceRecord, incarnation: int) -> ExitRecord | None:
        """The exit of a run, as far as the controller knows it."""
        if incarnation == record.incarnation:
            return record.exit
        start = _earlier(record, incarnation)
        crash = self._state.crashes.find(f"{record.id}.{incarnation}")
        return start.exit if start is not None else crash.record.exit if crash is not None else None

    async def listed(self, record: InstanceRecord, *, before: int | None, limit: int) -> RunList:
        """The runs known here and on the reachable nodes."""
        facts: dict[tuple[int, str], RunFacts] = {}
        for run in self._known(record, limit, before):
            facts[_place(facts.get((run.incarnation, "")), run)] = run
        nodes = list(dict.fromkeys(start.node for start in starts_of(record)))
        answers = await asyncio.gather(*(self._asked(record, node, before, limit) for node in nodes))
        notes = [note for _, _, note in answers if note]
        more = any(more for _, more, _ in answers)
        for node, (reported, _, _) in zip(nodes, answers, strict=True):
            for run in (self._described(node, each) for each in reported):
                if _counts(record, node, run.incarnation):
                    place = _place(facts.get((run.incarnation, "")), run)
                    facts[place] = _joined(facts.get(place), run)
        newest = sorted(
            (run for run in facts.values() if before is None or run.incarnation < before),
            key=lambda run: (run.incarnation, run.nonce == record.nonce),
            reverse=True,
        )
        return RunList(runs=newest[:limit], more=more or len(newest) > limit, notes=notes)

    async def running_at(self, record: InstanceRecord, at: dt.datetime) -> Incarnation:
        """The last run that had begun then, as far as runs are known; the oldest known one when all began later."""
        before: int | None = None
        oldest = record.incarnation
        for _ in range(_PAGES):
            found = await self.listed(record, before=before, limit=_PAGE)
            for run in found.runs:
                oldest = Incarnation(run.incarnation)
                if run.started_at is not None and run.started_at <= at:
                    return oldest
            if not found.more or not found.runs:
                break
            before = oldest
        return oldest

    async def _asked(
        self, record: InstanceRecord, node: NodeId, before: int | None, limit: int
    ) -> tuple[list[InstanceRun], bool, str]:
        query = ConsoleQuery(instance_id=record.id, before_run=before or 0, max_lines=limit, newest=True)
        try:
            runs, more = await self._history.runs(node, query)
        except CorralError as error:
            why = "cannot be asked at the moment" if isinstance(error, Retryable) else "cannot be asked"
            return [], False, f"node '{node}' {why}: runs that only it knows are missing ({error.code.name})"
        return runs, more, ""

    def _known(self, record: InstanceRecord, limit: int, before: int | None) -> Iterable[RunFacts]:
        for start in starts_of(record):
            newest = min(start.last, before - 1) if before is not None else start.last
            for number in range(newest, max(start.first, newest - limit + 1) - 1, -1):
                crash = self._state.crashes.find(f"{record.id}.{number}")
                if crash is not None:
                    ended = crash.record.exit.ended_at
                    yield RunFacts(
                        incarnation=number,
                        node=crash.record.node,
                        state=InstanceState.CRASHED.value,
                        plan_hash=_plan_of_start(record, number),
                        started_at=reported_time(
                            int(ended.timestamp() * 1000) - crash.record.uptime_ms, ended
                        ),
                        ended_at=ended,
                        exit=crash.record.exit,
                        nonce=crash.record.nonce,
                    )
        yield from (_of_earlier(start) for start in record.earlier)
        yield RunFacts(
            incarnation=record.incarnation,
            node=record.node,
            state=record.state.value,
            plan_hash=record.plan_hash,
            started_at=record.started_at,
            ended_at=record.ended_at,
            exit=record.exit,
            end_offset=record.console_end or None,
            nonce=record.nonce,
        )

    def _described(self, node: NodeId, run: InstanceRun) -> RunFacts:
        """A run as its node reported it, with every value bounded."""
        now = self._clock.now()
        ended = reported_time(run.ended_at_ms, now)
        state = InstanceState.CRASHED if run.crashed else InstanceState.STOPPED
        exit = exit_record(run.exit, crashed=run.crashed, now=now) if ended is not None else None
        return RunFacts(
            incarnation=run.incarnation,
            node=node,
            state=state.value if ended is not None else "UNKNOWN",
            plan_hash=run.plan_hash[:_MAX_HASH],
            started_at=reported_time(run.started_at_ms, now),
            ended_at=ended,
            exit=exit,
            first_offset=min(run.first_offset, _MAX_OFFSET),
            end_offset=min(run.end_offset, _MAX_OFFSET),
            nonce=run_nonce(run.nonce),
        )

    def crash_of(self, record: InstanceRecord, run: RunFacts) -> str | None:
        """The id of the crash that ended a run; None when no stored one did."""
        id = f"{record.id}.{run.incarnation}"
        for each in (f"{id}.{run.nonce}", id):
            crash = self._state.crashes.find(each)
            if crash is not None and (
                crash.record.nonce == run.nonce or not (crash.record.nonce and run.nonce)
            ):
                return each
        return None

    async def plan_hash(self, record: InstanceRecord, incarnation: int) -> str:
        """The hash of the plan that a run was started with; restarts by the node have that of their start.
        Queries the node for one that the record does not know, and raises what `NodeConsoleQueries.runs`
        raises. NOT_FOUND."""
        if known := _plan_of_start(record, incarnation):
            return known
        query = ConsoleQuery(
            instance_id=record.id, after_run=incarnation - 1, before_run=incarnation + 1, max_lines=1
        )
        runs, _ = await self._history.runs(record.node, query)
        if not runs or runs[0].incarnation != incarnation or not runs[0].plan_hash:
            raise Rejected(
                Code.NOT_FOUND,
                f"run {incarnation} of instance '{record.id}' is not known any more",
                hint=f"corral instance runs {record.id}",
                field="incarnation",
            )
        return runs[0].plan_hash[:_MAX_HASH]


def _plan_of_start(record: InstanceRecord, incarnation: int) -> str:
    """The plan hash of the run's start; empty when the start is no longer known."""
    plans = {start_number(start.incarnation): start.plan_hash for start in record.earlier}
    plans[start_number(record.incarnation)] = record.plan_hash
    return plans.get(start_number(incarnation), "")


def _of_earlier(start: EarlierStart) -> RunFacts:
    crashed = start.exit is not None and start.exit.crashed
    return RunFacts(
        incarnation=start.incarnation,
        node=start.node,
        state=(InstanceState.CRASHED if crashed else InstanceState.STOPPED).value,
        plan_hash=start.plan_hash,
        started_at=start.started_at,
        ended_at=start.ended_at,
        exit=start.exit,
        end_offset=start.console_end or None,
    )


def _place(known: RunFacts | None, reported: RunFacts) -> tuple[int, str]:
    """The key of a run in the list: separate from the known one of this number if it is a different run."""
    other = known is not None and known.nonce and reported.nonce and known.nonce != reported.nonce
    return reported.incarnation, reported.nonce if other else ""


def _joined(known: RunFacts | None, reported: RunFacts) -> RunFacts:
    """The facts of the record, completed by the node's, which is authoritative on console offsets. Whether
    the run has ended is decided by reports only."""
    if known is None:
        return reported
    over = known.state in _OVER
    return msgspec.structs.replace(
        known,
        nonce=known.nonce or reported.nonce,
        plan_hash=known.plan_hash or reported.plan_hash,
        started_at=known.started_at or reported.started_at,
        ended_at=known.ended_at or reported.ended_at if over else None,
        exit=known.exit or reported.exit if over else None,
        first_offset=reported.first_offset,
        end_offset=reported.end_offset,
    )


def _counts(record: InstanceRecord, node: NodeId, incarnation: int) -> bool:
    """Whether a node's facts about this run count: it was given the run, or the run is older than what the
    record knows."""
    return was_given(record, node, incarnation) or incarnation < starts_of(record)[0].first


def _forgotten_starts(record: InstanceRecord, after: Incarnation) -> list[Start]:
    """The possible runs between one of a start that the record no longer knows and the first that it knows:
    the present node may have them."""
    oldest = starts_of(record)[0].first
    if start_number(after) >= start_number(oldest):
        return []
    return [Start(record.node, Incarnation(after + 1), Incarnation(oldest - 1))]


def _step(
    record: InstanceRecord, after: Incarnation, to: Incarnation, *, end_offset: int | None = None
) -> NextRun:
    between = [
        (max(after + 1, start.first), min(start.last, to - 1))
        for start in starts_of(record)
        if max(after + 1, start.first) <= min(start.last, to - 1)
    ]
    words = [f"run {low}" if low == high else f"runs {low} to {high}" for low, high in between]
    if _forgotten_starts(record, after) and len(record.earlier) == EARLIER_STARTS:
        words.insert(0, f"what ran after run {after} and is not known any more")
    return NextRun(
        incarnation=to, node=node_of(record, to), passed_over=", ".join(words), end_offset=end_offset
    )
