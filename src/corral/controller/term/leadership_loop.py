"""The leadership loop: wait for the lease, serve one term after the other, and raise the epoch on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from corral.controller.sessions.node_links import no_longer_leading
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import AUTHORITY, CLUSTER
from corral.controller.state.ledger import Actor, Step, audit
from corral.controller.term.controller_role import ControllerInfo, ControllerRole
from corral.controller.term.leader_term import LeaderTerm
from corral.domain.events import Draft, EventType
from corral.domain.ids import EPOCH_LEAP, Epoch
from corral.domain.records import AuditOutcome
from corral.store.leadership import Leadership, LeaseTiming, Loss, Term
from corral.store.port import Store
from corral.store.store_errors import Fenced, StoreUnavailable
from corral.system import log_context
from corral.system.aio.tasks import Tasks, first_of, set_within
from corral.system.clock import Clock
from corral.system.controller_config import LeaseSection

_LOOK_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.controller.term")

OpenLink = Callable[[ClusterState], Awaitable[None]]
"""Starts listening for daemons, once the authority that they trust is known. Idempotent."""
OpenTerm = Callable[[Epoch, Sequence[Step]], contextlib.AbstractAsyncContextManager[LeaderTerm]]
"""Opens the term under this epoch, with the steps that it commits first."""


class EpochRaise(msgspec.Struct, frozen=True, kw_only=True):
    """A raise of the epoch, from its request on; the term in which it is requested may end first."""

    actor: Actor
    request: str
    """The id of the request."""
    lift: asyncio.Task[Epoch | None]


class EpochRaiser:
    """Raises the epoch of the lease on an operator's request. At most one raise is in progress."""

    def __init__(self, role: ControllerRole) -> None:
        self._role = role
        self._lease: Term | None = None
        self._raise: EpochRaise | None = None
        self._tasks = Tasks()

    def begin(self, lease: Term) -> None:
        """An epoch begins under this lease."""
        self._lease = lease
        self._raise = None

    async def raise_epoch(self, actor: Actor) -> Epoch:
        """Raise the epoch far above any that a node may have obeyed. Ends the present term at once."""
        leader, lease = self._role.require_term(), self._lease
        if lease is None:
            raise no_longer_leading()
        if self._raise is None:
            name = "controller/raise-epoch"
            lift = self._tasks.spawn(lease.raise_epoch(by=EPOCH_LEAP), name=name, awaited=True)
            self._raise = EpochRaise(actor=actor, request=log_context.bound_request(), lift=lift)
        try:
            epoch = await asyncio.shield(self._raise.lift)
        except StoreUnavailable:
            self._raise = None
            raise
        leader.fenced.set()
        if epoch is None:
            raise no_longer_leading()
        return epoch

    async def finished(self) -> EpochRaise | None:
        """The raise that ended the term, if one did; waits for one in progress."""
        current = self._raise
        if current is None:
            return None
        try:
            return current if await current.lift is not None else None
        except StoreUnavailable:
            return None

    async def wait(self) -> None:
        """Wait until no raise is in progress."""
        await self._tasks.wait()

    async def close(self) -> None:
        await self._tasks.close()


class LeadershipLoop:
    """Takes turns between standby and leader. `run` never returns; once it is cancelled, `release` gives the
    lease back. Only this loop changes the role."""

    def __init__(
        self,
        *,
        store: Store,
        role: ControllerRole,
        own: ControllerInfo,
        raiser: EpochRaiser,
        lease: LeaseSection,
        clock: Clock,
        open_term: OpenTerm,
        open_link: OpenLink,
        ready: asyncio.Event,
    ) -> None:
        """`ready` is set once daemons can find this controller, or the leader through it."""
        self._store = store
        self._role = role
        self._own = own
        self._raiser = raiser
        self._lease = lease
        self._clock = clock
        self._open_term = open_term
        self._open_link = open_link
        self._term: Term | None = None
        self._ready = ready

    async def run(self) -> None:
        alone = self._store.exclusive
        leadership = Leadership(
            self._store.leases,
            clock=self._clock,
            holder=self._role.holder,
            info=msgspec.json.encode(self._own).decode(),
            timing=LeaseTiming(
                ttl=self._lease.ttl_seconds,
                renew=self._lease.renew_seconds,
                margin=self._lease.margin_seconds,
                poll=min(1.0, self._lease.renew_seconds),
            ),
            uncontested=alone,
        )
        while True:
            self._term = await (leadership.acquire() if alone else self._wait_for_turn(leadership))
            await self._serve(self._term)

    async def release(self) -> None:
        """Give the lease back, if held, with the epoch of the last raise."""
        try:
            await self._raiser.wait()
            if self._term is not None:
                await self._term.release()
        finally:
            await self._raiser.close()

    # --- standby --------------------------------------------------------------------------------
    async def _wait_for_turn(self, leadership: Leadership) -> Term:
        """Stand by until elected; the standby task then ends between two steps, not within one."""
        elected = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as waiting:
                waiting.create_task(self._stand_by(leadership, elected), name="controller/standby")
                term = self._term = await leadership.acquire()
                elected.set()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return term

    async def _stand_by(self, leadership: Leadership, elected: asyncio.Event) -> None:
        """While another controller leads: read from the lease which one, and redirect daemons to it."""
        while not elected.is_set():
            with contextlib.suppress(StoreUnavailable):
                self._role.lease = await leadership.current()
                snapshot = await self._store.reads.snapshot([CLUSTER.name, AUTHORITY.name])
                if self._role.lease is not None and snapshot.documents:
                    state = ClusterState()
                    state.load(snapshot)
                    await self._open_link(state)
                    self._ready.set()
            await set_within(elected, _LOOK_SECONDS)

    # --- leading --------------------------------------------------------------------------------
    async def _serve(self, term: Term) -> None:
        """Lead until the lease is lost. Raising the epoch starts a new term under the same lease."""
        opening: list[Step] = []
        async with Tasks() as tasks:
            holding = tasks.spawn(term.hold(), name="controller/hold", awaited=True)
            while term.valid():
                self._raiser.begin(term)
                try:
                    await self._serve_epoch(term, holding, opening)
                except StoreUnavailable as error:
                    _log.warning("term_start.retried", reason=str(error))
                    await asyncio.sleep(_LOOK_SECONDS)
                    continue
                except Fenced:
                    _log.warning("term_start.fenced", epoch=term.epoch)
                raised = await self._raiser.finished()
                if raised is None:
                    return
                opening = _epoch_raised(raised, term.epoch)

    async def _serve_epoch(self, term: Term, holding: asyncio.Task[Loss], opening: Sequence[Step]) -> None:
        async with self._open_term(term.epoch, opening) as leader:
            await self._open_link(leader.state)
            self._role.term = leader
            self._ready.set()
            _log.info("term.started", epoch=term.epoch, holder=self._role.holder)
            try:
                # Raising the epoch fences this term's own writer, too: `fenced` ends it either way.
                await first_of(holding, leader.fenced, name="controller/fenced")
            finally:
                self._role.term = None


def _epoch_raised(raised: EpochRaise, epoch: Epoch) -> list[Step]:
    """The event of a raise, and its outcome for the audit."""
    return [
        Draft(type=EventType.CLUSTER_EPOCH_RAISED, subject="cluster", data={"epoch": epoch}),
        audit(
            raised.actor,
            "cluster.raise_epoch",
            "cluster",
            after={"epoch": epoch},
            request=raised.request,
            outcome=AuditOutcome.OK,
            attempt=raised.request,
        ),
    ]
