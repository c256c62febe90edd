"""Attempts at effects outside the store that must happen once only: a line for an instance, a call into a module.

    begin    the audit entry and, with an Idempotency-Key, that this was begun: durable before anything is done
    (act)    the effect
    finish   what the effect brought about, and the answer under the key

When the store refuses `begin`, nothing is done. When it refuses `finish`, the effect stays and the caller is answered
all the same: the key stays begun, and a repetition queries the outcome of the effect instead of doing it again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import Final

import msgspec
import structlog

from corral.controller.http.messages.call import Caller
from corral.controller.http.messages.responses import REPLAYED, ApiResponse, refusal
from corral.controller.http.pipeline.idempotency import Guard
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Actor, Ledger, Step, audit
from corral.domain.ids import Incarnation, NodeId
from corral.domain.records import BegunEffect
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.store_errors import Conflict, StoreUnavailable
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.entropy import Entropy, new_id

MAX_BEGUN: Final = 1000
"""Keys of one token whose effects have no known outcome."""

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

    def in_turn(self, guard: Guard | None) -> contextlib.AbstractAsyncContextManager[None]:
        """Held while a request acts: one with the same key waits."""
        return self.turns.hold(guard.id) if guard is not None else contextlib.nullcontext()

    def attempt(
        self, *, caller: Caller, now: dt.datetime, guard: Guard | None, whole: bool = False
    ) -> Attempt:
        """A new attempt; IDEMPOTENCY_KEY_REUSED when the key belongs to another request. `whole`: the answer is
        kept with its headers, for it is not ours; see `kept_answer`."""
        return Attempt(self, caller=caller, now=now, guard=guard, whole=whole)


class Attempt:
    """One attempt at such a request."""

    def __init__(
        self, attempts: Attempts, *, caller: Caller, now: dt.datetime, guard: Guard | None, whole: bool
    ) -> None:
        self._attempts = attempts
        self._caller = caller
        self._now = now
        self._guard = guard
        self._whole = whole
        stored = guard.find(attempts.state, now) if guard is not None else None
        self.begun: BegunEffect | None = stored.record.begun if stored is not None else None
        """The effect that an earlier attempt with this key was about to have."""
        if guard is not None and self.begun is not None and guard.id in attempts.never_acted:
            self.begun = msgspec.structs.replace(self.begun, undone=True)
        self.answered = stored if self.begun is None else None
        """The answer to an earlier attempt with this key: nothing is left to do."""

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
        steps: list[Step] = [audit(self.actor, action, subject, after=after)]
        if self._guard is not None:
            self._refuse_too_many()
            steps.append(
                self._guard.begin(
                    effect, state=self._attempts.state, now=self._now, entropy=self._attempts.entropy
                )
            )
        try:
            await self._attempts.ledger.commit(*steps)
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
        if self._guard is not None:
            self._attempts.never_acted.pop(self._guard.id, None)
        return effect

    def _remember_refusal(self) -> None:
        """The store may have the key as begun all the same: a repetition then knows that nothing was done."""
        if self._guard is None or self.in_doubt:
            return
        known = self._attempts.never_acted
        known[self._guard.id] = None
        while len(known) > MAX_BEGUN:
            del known[next(iter(known))]

    async def undo(self) -> None:
        """Nothing was done: the effect may be tried again. A store that refuses leaves it in doubt."""
        if self._guard is None or self.begun is None:
            return
        effect = msgspec.structs.replace(self.begun, undone=True)
        await self._store(
            self._guard.begin(
                effect, state=self._attempts.state, now=self._now, entropy=self._attempts.entropy
            )
        )

    async def finish(self, *steps: Step, answer: ApiResponse) -> None:
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
        if kept:
            await self._store(*kept)

    async def fail(self, error: CorralError) -> None:
        """Store that the effect failed, as its answer."""
        await self.finish(answer=refusal(error))

    async def _store(self, *steps: Step) -> None:
        try:
            await self._attempts.ledger.commit(*steps)
        except CorralError as error:
            _log.warning("request_outcome_write.failed", actor=self.actor.name, reason=str(error))

    def _refuse_too_many(self) -> None:
        if self.begun is None and self._attempts.state.idempotency.begun_by(self._caller.id) >= MAX_BEGUN:
            raise Retryable(
                Code.RATE_LIMITED,
                f"{MAX_BEGUN} requests of this token with an Idempotency-Key have no known outcome",
                hint="repeat these with their keys, or wait until they are a day old",
                retry_after=60.0,
            )


def may_have_arrived(what: str, *, hint: str) -> Rejected:
    """MAY_HAVE_ARRIVED: it is unknown whether an earlier attempt had its effect; this one did nothing."""
    return Rejected(Code.MAY_HAVE_ARRIVED, f"{what}: an earlier attempt was interrupted", hint=hint)
