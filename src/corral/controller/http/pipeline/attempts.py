"""Attempts at effects outside the store that must happen once only: a line for an instance, a call into a module.

    begin    the audit entry and, with an Idempotency-Key, that this was begun: durable before anything is done
    (act)    the effect
    finish   what the effect brought about, the answer under the key, and the outcome for the audit

When the store refuses `begin`, nothing is done. When it refuses `finish`, the effect stays and the caller is answered
all the same: the key stays begun, and a repetition queries the outcome of the effect instead of doing it again. The
audit's outcome is then stored with the next attempt; when the process ends before that, the next term stores that it
is unknown.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog

from corral.controller.http.messages.call import Caller
from corral.controller.http.messages.responses import REPLAYED, ApiResponse, refusal
from corral.controller.http.pipeline.idempotency import Guard
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Actor, Ledger, Step, audit
from corral.domain.ids import Incarnation, NodeId
from corral.domain.records import AuditOutcome, BegunEffect
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.port import Append
from corral.store.store_errors import Conflict, StoreUnavailable
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.entropy import Entropy, new_id

MAX_BEGUN: Final = 1000
"""Keys of one token whose effects have no known outcome."""

IN_DOUBT: Final = frozenset(
    {Code.MAY_HAVE_ARRIVED, Code.MODULE_TIMEOUT, Code.NODE_OFFLINE, Code.NOT_LEADER, Code.TIMEOUT}
)
"""Errors after which an effect may have come about all the same."""

_WHOLE: Final = msgspec.msgpack.Decoder(ApiResponse)
_log = structlog.get_logger("corral.controller.http")


class Attempts:
    """The attempts of one term. Attempts with the same key are serialised."""

    def __init__(self, *, state: ClusterState, ledger: Ledger, entropy: Entropy) -> None:
        self.state = state
        self.ledger = ledger
        self.entropy = entropy
        self.never_acted: dict[str, None] = {}
        """Keys that may yet be stored as begun, though their request was refused and did nothing; the latest."""
        self.turns = KeyedLocks[str]()
        self.unstored: dict[str, Append] = {}
        """Outcomes that could not be stored yet, by attempt; the latest."""

    def in_turn(self, guard: Guard | None) -> contextlib.AbstractAsyncContextManager[None]:
        """Held while a request acts: one with the same key waits."""
        return self.turns.hold(guard.id) if guard is not None else contextlib.nullcontext()

    async def commit(self, *steps: Step) -> None:
        """Commit with the outcomes that are not stored yet."""
        late = dict(self.unstored)
        await self.ledger.commit(*steps, *late.values())
        for id in late:
            self.unstored.pop(id, None)

    def keep(self, attempt: str, outcome: Append) -> None:
        """Store this outcome with a later commit."""
        self.unstored[attempt] = outcome
        while len(self.unstored) > MAX_BEGUN:
            del self.unstored[next(iter(self.unstored))]

    def attempt(
        self,
        *,
        caller: Caller,
        now: dt.datetime,
        guard: Guard | None,
        whole: bool = False,
        refuse_changed_rights: Callable[[], None] | None = None,
    ) -> Attempt:
        """A new attempt; IDEMPOTENCY_KEY_REUSED when the key belongs to another request. `whole`: the answer is
        kept with its headers, for it is not ours; see `kept_answer`. `refuse_changed_rights`: called when the attempt is
        begun, for the store may have taken a while."""
        return Attempt(
            self,
            caller=caller,
            now=now,
            guard=guard,
            whole=whole,
            refuse_changed_rights=refuse_changed_rights,
        )


class AuditedAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act outside the store, as its entries in the audit name it."""

    actor: Actor
    action: str
    subject: str
    id: str

    def begun(self, *, after: dict[str, object] | None = None) -> Append:
        return self._entry(AuditOutcome.BEGUN, after=after)

    def ended(
        self,
        outcome: AuditOutcome,
        *,
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> Append:
        return self._entry(outcome, before=before, after=after)

    def _entry(
        self,
        outcome: AuditOutcome,
        *,
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> Append:
        return audit(
            self.actor,
            self.action,
            self.subject,
            before=before,
            after=after,
            outcome=outcome,
            attempt=self.id,
        )


class Attempt:
    """One attempt at such a request."""

    def __init__(
        self,
        attempts: Attempts,
        *,
        caller: Caller,
        now: dt.datetime,
        guard: Guard | None,
        whole: bool,
        refuse_changed_rights: Callable[[], None] | None,
    ) -> None:
        self._attempts = attempts
        self._caller = caller
        self._now = now
        self._guard = guard
        self._whole = whole
        self._refuse_changed_rights = refuse_changed_rights
        stored = guard.find(attempts.state, now) if guard is not None else None
        self.begun: BegunEffect | None = stored.record.begun if stored is not None else None
        """The effect that an earlier attempt with this key was about to have."""
        if guard is not None and self.begun is not None and guard.id in attempts.never_acted:
            self.begun = msgspec.structs.replace(self.begun, undone=True)
        self.answered = stored if self.begun is None else None
        """The answer to an earlier attempt with this key: nothing is left to do."""
        self._act: AuditedAct | None = None

    @property
    def kept_answer(self) -> ApiResponse | None:
        """The answer that was kept whole."""
        if self._guard is None or self.answered is None:
            return None
        kept = _WHOLE.decode(self._guard.open(self.answered.record))
        return msgspec.structs.replace(kept, headers=(*kept.headers, *REPLAYED))

    @property
    def in_doubt(self) -> bool:
        """An earlier attempt with this key may have had its effect."""
        return self.begun is not None and not self.begun.undone

    @property
    def actor(self) -> Actor:
        return self._caller.actor

    async def begin(
        self,
        *,
        action: str,
        subject: str,
        after: dict[str, object],
        node: NodeId | None = None,
        incarnation: Incarnation | None = None,
    ) -> BegunEffect:
        """Store the audit entry and that the effect is begun. After any error nothing may be done.

        STORE_UNAVAILABLE, FENCED; RATE_LIMITED with too many keys whose effects are in doubt."""
        effect = self.begun or BegunEffect(
            token=self._caller.id,
            id=new_id("once", self._attempts.entropy) if self._guard is not None else "",
            node=node or NodeId(""),
            incarnation=incarnation or Incarnation(0),
        )
        effect = msgspec.structs.replace(effect, undone=False)
        act = AuditedAct(
            actor=self.actor,
            action=action,
            subject=subject,
            id=effect.id or new_id("once", self._attempts.entropy),
        )
        steps: list[Step] = [act.begun(after=after)]
        if self._guard is not None:
            self._refuse_too_many()
            steps.append(
                self._guard.begin(
                    effect, state=self._attempts.state, now=self._now, entropy=self._attempts.entropy
                )
            )
        try:
            await self._attempts.commit(*steps)
        except StoreUnavailable:
            self._remember_refusal()
            raise
        except Conflict:
            raise Retryable(
                Code.CONFLICT,
                "another request with this Idempotency-Key was faster",
                hint="repeat the request: it is answered like that one",
                retry_after=1.0,
            ) from None
        self.begun = effect
        self._act = act
        if self._guard is not None:
            self._attempts.never_acted.pop(self._guard.id, None)
        if self._refuse_changed_rights is not None:
            try:
                self._refuse_changed_rights()
            except CorralError as error:
                await self.undo(error)
                raise
        return effect

    def _remember_refusal(self) -> None:
        """The store may have the key as begun all the same: a repetition then knows that nothing was done."""
        if self._guard is None or self.in_doubt:
            return
        known = self._attempts.never_acted
        known[self._guard.id] = None
        while len(known) > MAX_BEGUN:
            del known[next(iter(known))]

    def resume(self, *, action: str, subject: str) -> None:
        """Go on with an effect that an earlier attempt began: its outcome follows that one's audit entry, unless it has
        one that waits to be stored."""
        if self.begun is not None and self.begun.id not in self._attempts.unstored:
            self._act = AuditedAct(actor=self.actor, action=action, subject=subject, id=self.begun.id)

    async def announce(
        self, *, action: str, subject: str, id: str, after: dict[str, object] | None = None
    ) -> None:
        """Store the audit entry of an act that may be repeated, so that its key is not stored as begun. `id`: of the
        request. After any error nothing may be done."""
        act = AuditedAct(actor=self.actor, action=action, subject=subject, id=id)
        await self._attempts.commit(act.begun(after=after))
        self._act = act

    async def undo(self, error: CorralError | None = None) -> None:
        """Nothing was done, because of this error: the effect may be tried again. A store that refuses leaves it in
        doubt."""
        steps: list[Step] = []
        if self._guard is not None and self.begun is not None:
            effect = msgspec.structs.replace(self.begun, undone=True)
            steps.append(
                self._guard.begin(
                    effect, state=self._attempts.state, now=self._now, entropy=self._attempts.entropy
                )
            )
        refused = AuditOutcome.REFUSED if error is None else outcome_of(error)
        await self._store(*steps, outcome=refused, code=error.code.name if error is not None else "")

    async def finish(
        self,
        *steps: Step,
        answer: ApiResponse,
        outcome: AuditOutcome = AuditOutcome.OK,
        code: str = "",
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> None:
        """Store what the effect brought about, and its answer. A store that refuses is logged."""
        kept = list(steps)
        if self._guard is not None:
            body = msgspec.msgpack.encode(answer) if self._whole else answer.body
            kept.append(
                self._guard.keep(
                    state=self._attempts.state,
                    status=answer.status,
                    body=body,
                    now=self._now,
                    entropy=self._attempts.entropy,
                )
            )
        await self._store(*kept, outcome=outcome, code=code, before=before, after=after)

    async def doubt(self) -> None:
        """Store that the effect may have come about."""
        await self._store(outcome=AuditOutcome.UNKNOWN)

    async def fail(self, error: CorralError) -> None:
        """Store that the effect failed, as its answer."""
        await self.finish(answer=refusal(error), outcome=outcome_of(error), code=error.code.name)

    @contextlib.asynccontextmanager
    async def concluded(self) -> AsyncIterator[None]:
        """An act that was audited within, and ends without an outcome: its error is the outcome."""
        try:
            yield
        except CorralError as error:
            await self._store(outcome=outcome_of(error), code=error.code.name)
            raise
        except Exception as error:
            await self._store(outcome=AuditOutcome.UNKNOWN, code=type(error).__name__)
            raise
        except BaseException:  # cancelled: nothing can be awaited
            if self._act is not None:
                self._attempts.keep(self._act.id, self._act.ended(AuditOutcome.UNKNOWN))
            raise

    def recorded(
        self, *, before: dict[str, object] | None = None, after: dict[str, object] | None = None
    ) -> Append | None:
        """The outcome of an act that was announced and done, for the commit that records it."""
        return self._act.ended(AuditOutcome.OK, before=before, after=after) if self._act is not None else None

    def settled(self) -> None:
        """The outcome is stored."""
        self._act = None

    async def _store(
        self,
        *steps: Step,
        outcome: AuditOutcome,
        code: str = "",
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> None:
        """Store steps and the outcome of the act, if it has none yet."""
        act, self._act = self._act, None
        after = (after or {}) | ({"code": code} if code else {}) or None
        ended = None if act is None else act.ended(outcome, before=before, after=after)
        if not steps and ended is None:
            return
        try:
            await self._attempts.commit(*steps, *(() if ended is None else (ended,)))
        except CorralError as error:
            _log.warning("request_outcome_write.failed", actor=self.actor.name, reason=str(error))
            if act is not None and ended is not None:
                self._attempts.keep(act.id, ended)

    def _refuse_too_many(self) -> None:
        if self.begun is None and self._attempts.state.idempotency.begun_by(self._caller.id) >= MAX_BEGUN:
            raise Retryable(
                Code.RATE_LIMITED,
                f"{MAX_BEGUN} requests of this token with an Idempotency-Key have no known outcome",
                hint="repeat these with their keys, or wait until they are a day old",
                retry_after=60.0,
            )


def outcome_of(error: CorralError) -> AuditOutcome:
    """The outcome of an act that ended with this error."""
    if error.code in IN_DOUBT:
        return AuditOutcome.UNKNOWN
    return AuditOutcome.REFUSED if error.code.status < 500 else AuditOutcome.FAILED


def may_have_arrived(what: str, *, hint: str) -> Rejected:
    """MAY_HAVE_ARRIVED: it is unknown whether an earlier attempt had its effect; this one did nothing."""
    return Rejected(Code.MAY_HAVE_ARRIVED, f"{what}: an earlier attempt was interrupted", hint=hint)
