"""The chain of causes of a decision: from what happened first, a crash or a request, to the decision."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Final

from corral.controller.http.messages.paging import TimedPageQuery, newest_entries
from corral.controller.http.resources.why.decision_history import DecisionHead, DecisionHistory
from corral.controller.http.resources.why.event_authors import author_of, remover_of
from corral.controller.http.resources.why.why_answer import ChainShape
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import (
    AUDIT,
    Journal,
    group_decisions,
    instance_decisions,
    node_decisions,
)
from corral.domain.access import Access
from corral.domain.events import Cursor, Event, EventType
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.ids import Incarnation, same_start
from corral.domain.instance_states import Wanted
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import redacted_event, sees_all, unseen_types
from corral.errors import Code, CorralError, counted
from corral.store.port import ReadEngine

LONGEST: Final = 20
_EMPTIED: Final = 10
"""The most nodes that are emptied among whose decisions a cause is looked for."""
_CHANGED: Final = 20
"""The most other nodes: one that was undrained is emptied no more, and what moved away from it may be forgotten."""
_GETS_READY: Final = frozenset({EventType.INSTANCE_RUNNING, EventType.INSTANCE_READY_CHANGED})
_BEFORE: Final = dt.timedelta(seconds=60)
_AFTER: Final = dt.timedelta(seconds=5)


class ChainReader:
    """Follows causes backwards, as far as they are kept and the caller may see them."""

    def __init__(
        self,
        state: ClusterState,
        reads: ReadEngine,
        access: Access,
        history: DecisionHistory,
        journals: Sequence[Journal[DecisionRecord]],
    ) -> None:
        """`journals`: where the decisions of the chain are looked for first; then where their subjects' are."""
        self._state = state
        self._reads = reads
        self._access = access
        self._history = history
        self._journals = journals
        self._steps: list[ChainShape] = []
        self._given_up = ""
        """The node of the first event, if that is about an instance and the node is not there any more."""

    async def find(self, id: str, *, near: str = "", node: str = "") -> DecisionHead | None:
        """A decision by its id, among the newest of its journals; `near`: and of those of an instance, a group or a node,
        and of the nodes that it may have left, or that were changed last; `node`: and of this one."""
        for journal in (*self._journals, *(self._journals_near(near, node) if near else ())):
            found = (await self._history.heads(journal)).get(id)
            if found is not None:
                return found
        return None

    def _journals_near(self, subject: str, node: str) -> Iterator[Journal[DecisionRecord]]:
        stored = self._state.instances.find(subject)
        group = stored.record.group if stored is not None else subject.rpartition("-")[0]
        known = stored is not None or self._state.groups.find(group) is not None
        yield instance_decisions(subject)
        yield group_decisions(group if known else subject)
        moved = self._state.instances.find(stored.record.moves) if stored is not None else None
        left = moved.record.node if moved is not None else ""
        own = subject if self._state.nodes.find(subject) is not None else ""
        here = stored.record.node if stored is not None else ""
        near = (own, node, here, left, *sorted(self._state.nodes.emptied)[:_EMPTIED])
        changed = sorted(self._state.nodes, key=lambda each: each.revision, reverse=True)[:_CHANGED]
        for name in dict.fromkeys((*near, *(each.record.id for each in changed))):
            if name:
                yield node_decisions(name)

    async def chain(self, last: DecisionHead | None) -> list[ChainShape]:
        """The steps to a decision, the first cause first, `LONGEST` at most."""
        self._steps = []
        seen: set[str] = set()
        current = last
        while current is not None and current.id not in seen and len(self._steps) < LONGEST:
            seen.add(current.id)
            self._add("decision", current.id, current.subject, current.reason, current.at, rule=current.rule)
            current = await self._before(current)
        await self._add_author()
        steps = self._steps[:LONGEST]
        if len(self._steps) > LONGEST or current is not None:
            steps[-1] = _cut("the chain is longer")
        return steps[::-1]

    async def _add_author(self) -> None:
        """Where the chain ends at an event that a request stored: add the request."""
        first = self._steps[-1] if self._steps else None
        if first is None or first.kind != "event" or first.at is None:
            return
        if not self._access.allows_everywhere(Permission.AUDIT_READ):
            return
        author = await author_of(self._reads, first.subject, first.at)
        if author is None and self._given_up:
            author = await remover_of(self._reads, self._given_up, first.at)
        if author is not None:
            self._add("request", author.request, first.subject, author.text, author.at)

    async def _before(self, decision: DecisionHead) -> DecisionHead | None:
        """Add the causes of a decision; the decision that is among them, to go on with."""
        if not decision.causes:
            self._add("cause", "", decision.subject, decision.root or decision.cause, None)
            return None
        for cause in decision.causes:
            kind, _, id = cause.partition(":")
            if cause.startswith("dec-"):
                return await self._decision(cause, decision.subject, decision.node)
            if kind == "event":
                following, subject = await self._event(id)
                if following:
                    return await self._decision(following, subject)
            elif kind == "crash":
                self._crash(id)
            elif kind == "request":
                await self._request(id, decision)
            elif kind == "node":
                self._add("cause", "", id, f"node '{id}' reported it", decision.at)
            elif kind == "players":
                self._add("cause", "", id, f"the players of '{id}' changed", decision.at)
            else:
                self._add("cause", "", decision.subject, cause, None)
        return None

    async def _decision(self, id: str, near: str, node: str = "") -> DecisionHead | None:
        found = await self.find(id, near=near, node=node)
        if found is None:
            self._steps.append(_cut(f"decision {id} is no longer kept"))
        return found

    async def _event(self, text: str) -> tuple[str, str]:
        """Add an event; the id of the decision behind it, and its subject."""
        event = await self._find_event(text)
        if event is None:
            self._steps.append(_cut(f"event {text} is no longer in the log"))
            return "", ""
        if event.type in unseen_types(self._access):
            self._steps.append(_cut(f"event {text} is not for this role"))
            return "", ""
        node = event.data.get("node")
        self._given_up = node if isinstance(node, str) and self._state.nodes.find(node) is None else ""
        shown = event if sees_all(self._access) else redacted_event(event)
        crash = shown.data.get("crash")
        known = self._state.crashes.find(crash) if isinstance(crash, str) else None
        restarts = self._restarts_before(known.record) if known is not None else []
        reason = _event_text(shown)
        if restarts:
            times = counted(len(restarts), "restart")
            reason += f", after {times} by its node"
        self._add("event", str(event.cursor), event.subject, reason, event.at, rule=event.type.value)
        for each in restarts:
            self._restart(each)
        decided = shown.data.get("decision")
        return decided if isinstance(decided, str) else self._start_behind(event), event.subject

    def _start_behind(self, event: Event) -> str:
        """The decision to start the run that an event says is ready, as long as that is the present one."""
        stored = self._state.instances.find(event.subject) if event.type in _GETS_READY else None
        number = event.data.get("incarnation")
        if stored is None or stored.record.wanted is not Wanted.RUN or not isinstance(number, int):
            return ""
        record = stored.record
        return record.decision if same_start(record.incarnation, Incarnation(number)) else ""

    async def _find_event(self, text: str) -> Event | None:
        try:
            cursor = Cursor.parse(text)
            before = await self._reads.cursor_at(max(0, cursor.sequence - 1))
            found = await self._reads.events(before, limit=1)
        except CorralError as error:
            if error.code in (Code.RESYNC_REQUIRED, Code.INVALID_CURSOR):
                return None
            raise
        return next((event for event in found if event.cursor == cursor), None)

    def _crash(self, id: str) -> None:
        found = self._state.crashes.find(id)
        if found is None:
            self._steps.append(_cut(f"crash {id} is no longer kept"))
            return
        record = found.record
        self._add(
            "crash",
            record.id,
            record.instance,
            f"'{record.instance}' crashed: {record.exit.summary}",
            record.at,
        )
        for each in self._restarts_before(record):
            self._restart(each)

    def _restart(self, crash: CrashRecord) -> None:
        text = f"'{crash.instance}' crashed: {crash.exit.summary}; restarted by its node"
        self._add("restart", crash.id, crash.instance, text, crash.at)

    def _restarts_before(self, crash: CrashRecord) -> list[CrashRecord]:
        """Crashes of the same start after which its node restarted it, the newest first."""
        crashes = self._state.crashes
        found = (crashes.require(id).record for id in reversed(crashes.of_node(crash.node)))
        return [
            each
            for each in found
            if each.instance == crash.instance
            and each.restarted_as
            and each.id != crash.id
            and same_start(each.incarnation, Incarnation(crash.incarnation))
            and each.incarnation < crash.incarnation
        ]

    async def _request(self, id: str, decision: DecisionHead) -> None:
        """Add a request: who made it and what it did, from the audit where the caller may read that."""
        text = decision.cause if decision.cause.startswith("token:") else f"request {id}"
        at = decision.at
        if self._access.allows_everywhere(Permission.AUDIT_READ):
            query = TimedPageQuery(limit=200, since=at - _BEFORE, until=at + _AFTER)
            entries, _ = await newest_entries(self._reads, AUDIT.name, query)
            for entry in entries:
                record = AUDIT.decode(entry.body)
                if record.request == id:
                    who = record.actor_name or record.actor
                    text, at = f"{who} asked for {record.action} of '{record.subject}'", entry.at
                    break
        self._add("request", id, decision.subject, text, at)

    def _add(
        self, kind: str, id: str, subject: str, reason: str, at: dt.datetime | None, *, rule: str = ""
    ) -> None:
        self._steps.append(ChainShape(kind=kind, id=id, subject=subject, rule=rule, reason=reason, at=at))


def _cut(reason: str) -> ChainShape:
    return ChainShape(kind="truncated", id="", subject="", rule="", reason=reason, at=None)


def _event_text(event: Event) -> str:
    data = event.data
    if event.type is EventType.INSTANCE_CRASHED:
        return f"'{event.subject}' crashed: {data.get('reason', '')}"
    if event.type is EventType.GROUP_SCALED:
        return f"'{event.subject}' was scaled from {data.get('from')} to {data.get('to')}"
    words = event.type.value.lower().replace("_", " ")
    return f"{words} '{event.subject}'" + (f": {data['reason']}" if data.get("reason") else "")
