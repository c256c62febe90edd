"""One term of leadership: everything that exists only while this controller leads, under one epoch.

A term is built from the store and discarded as a whole. Nothing of a term survives it in memory, so a new
leader never relies on what it read as a standby.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from corral.controller.accounts.roles import warn_of_missing_roles
from corral.controller.accounts.user_sessions import UserSessions
from corral.controller.distribution.service import Distribution
from corral.controller.events.hub import EventHub
from corral.controller.http.pipeline.api_context import TermContext
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.instances.group_format_upgrade import upgrade_groups
from corral.controller.instances.group_reload import reload_groups
from corral.controller.instances.ledger_format_upgrade import upgrade_ledgers
from corral.controller.instances.service import InstanceService
from corral.controller.modules.module_service import Modules
from corral.controller.modules_on_nodes.node_traffic import NodeModuleTraffic
from corral.controller.reconcile.loop import Reconciler
from corral.controller.sessions.grpc_service import LinkTerm
from corral.controller.sessions.session_registry import Sessions
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import SYSTEM, Ledger, Step
from corral.controller.templates.library import TemplateLibrary
from corral.controller.term.cluster_init import ensure_first_user, found_cluster
from corral.controller.term.commit_followers import Followers
from corral.controller.term.housekeeping import Housekeeping
from corral.controller.term.term_services import NodeServices, TermDeps, TermServices
from corral.controller.workload.service import Workloads
from corral.domain.accounts.oidc_bindings import read_group_table
from corral.domain.events import Draft, EventType
from corral.domain.ids import Epoch
from corral.pki.authority import Authority
from corral.store.port import Commit, Store
from corral.store.store_errors import Fenced
from corral.store.writer import Writer, WriterTiming
from corral.system.aio.tasks import Tasks

_RESTART_SECONDS: Final = 1.0
_REPORTED_UNREADABLE: Final = 100
_log = structlog.get_logger("corral.controller.term")


@dataclass(frozen=True, kw_only=True)
class LeaderTerm:
    """A term in service. Created by `open_term`."""

    epoch: Epoch
    store: Store
    ledger: Ledger
    writer: Writer
    hub: EventHub
    fenced: asyncio.Event
    """Set when a later epoch has fenced this term's writer: another controller leads, or the epoch was raised."""
    nodes: NodeServices
    services: TermServices

    @property
    def state(self) -> ClusterState:
        return self.ledger.state

    @property
    def sessions(self) -> Sessions:
        return self.nodes.sessions

    @property
    def templates(self) -> TemplateLibrary:
        return self.nodes.templates

    @property
    def distribution(self) -> Distribution:
        return self.nodes.distribution

    @property
    def workload(self) -> Workloads:
        return self.nodes.workload

    @property
    def instances(self) -> InstanceService:
        return self.nodes.instances

    @property
    def reconciler(self) -> Reconciler:
        return self.nodes.reconciler

    @property
    def authority(self) -> Authority:
        return self.services.authority

    @property
    def http(self) -> TermContext:
        return self.services.http

    @property
    def link(self) -> LinkTerm:
        return self.services.link

    @property
    def modules(self) -> Modules:
        return self.services.modules

    @property
    def node_modules(self) -> NodeModuleTraffic:
        return self.services.node_modules


@contextlib.asynccontextmanager
async def open_term(
    deps: TermDeps,
    *,
    state: ClusterState,
    on_fatal: Callable[[BaseException], None],
    opening: Sequence[Step] = (),
) -> AsyncIterator[LeaderTerm]:
    """On entry the term serves; on exit none of its tasks runs any more, also when the entry failed or was
    cancelled.

    `state` is empty and becomes the memory of this term. `opening` is committed together with the event of
    the new leader.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield await _TermStart(deps, state, stack, on_fatal=on_fatal).open(opening)


class _TermStart:
    """The steps of opening a term, in order. The cleanup of each step is on the stack when the step returns."""

    def __init__(
        self,
        deps: TermDeps,
        state: ClusterState,
        stack: contextlib.AsyncExitStack,
        *,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._deps = deps
        self._state = state
        self._stack = stack
        self._followers = Followers()
        self._fenced = asyncio.Event()
        self._writer = Writer(
            deps.store.commits,
            epoch=deps.epoch,
            clock=deps.clock,
            entropy=deps.entropy,
            on_commit=self._fold,
            on_fenced=self._depose,
            on_fatal=on_fatal,
            timing=WriterTiming(patience=deps.config.store.commit_wait_seconds),
        )
        self._ledger = Ledger(self._writer, state)

    def _fold(self, commit: Commit) -> None:
        """Fold a commit into memory, then into the followers. A failure of memory ends the process, because
        memory must equal the store; a failure of a follower ends nothing."""
        self._state.apply(commit)
        self._followers.follow(commit)

    def _depose(self, fenced: Fenced) -> None:
        _log.error("term.fenced", epoch=self._deps.epoch, current=fenced.current)
        self._fenced.set()

    async def open(self, opening: Sequence[Step]) -> LeaderTerm:
        deps, stack, ledger = self._deps, self._stack, self._ledger
        snapshot = await deps.store.reads.snapshot(self._state.collections)
        self._state.load(snapshot)
        hub = EventHub(log=deps.store.reads, clock=deps.clock, head=snapshot.head.cursor)
        nodes = NodeServices(deps, ledger=ledger, stack=stack)
        nodes.join(self._followers)
        self._followers.add("events", _Publishing(hub))
        self._writer.start()
        stack.push_async_callback(self._writer.close)
        await self._found()
        await upgrade_groups(ledger)
        await upgrade_ledgers(ledger)
        await self._announce(opening)
        await nodes.sessions.forget_predecessors()
        await nodes.instances.numbers.refill()
        if nodes.group_folder is not None:
            await self._load_groups(nodes, nodes.group_folder)
        services = TermServices(deps, nodes, ledger=ledger, hub=hub, writer=self._writer, stack=stack)
        self._followers.add("modules on nodes", services.node_modules, before="events")
        await stack.enter_async_context(self._housekeeping(services.http.user_sessions))
        self._keep_running("followers/resync", self._followers.run)
        self._keep_running("distribution/warm", nodes.distribution.run)
        self._keep_running("dispatch/repeat", nodes.instances.dispatcher.run)
        self._keep_running("stages/publish", nodes.instances.stages.run)
        self._keep_running("drain-orders/run", nodes.instances.drain_orders.run)
        self._keep_running("reconcile/run", nodes.reconciler.run)
        self._keep_running("failed-logins/run", services.http.logins.password.failures.run)
        stack.push_async_callback(services.modules.close)
        await services.modules.open()
        self._announce_first_admin(services)
        self._warn_of_roles()
        return LeaderTerm(
            epoch=deps.epoch,
            store=deps.store,
            ledger=ledger,
            writer=self._writer,
            hub=hub,
            fenced=self._fenced,
            nodes=nodes,
            services=services,
        )

    async def _load_groups(self, nodes: NodeServices, folder: GroupFolder) -> None:
        """Rejected: the directory is empty or cannot be read."""
        await reload_groups(
            folder,
            lambda: nodes.instances.workspace(cause="load of the groups directory"),
            self._ledger,
            actor=SYSTEM,
        )

    async def _found(self) -> None:
        await found_cluster(
            ledger=self._ledger,
            data=self._deps.config.data,
            key_path=self._deps.config.cluster_key_path,
            clock=self._deps.clock,
            entropy=self._deps.entropy,
            on_purpose=self._deps.found_cluster,
        )
        await ensure_first_user(self._ledger, self._deps.clock)

    async def _announce(self, opening: Sequence[Step]) -> None:
        event = Draft(
            type=EventType.LEADER_CHANGED,
            subject=self._state.identity.id,
            data={"holder": self._deps.holder, "epoch": self._deps.epoch},
        )
        await self._ledger.commit(event, *opening, *self._unreadable())

    def _announce_first_admin(self, services: TermServices) -> None:
        """Say how to become the first administrator, for as long as none has a password."""
        code = services.http.logins.first_admin.new_code()
        if code is not None:
            self._deps.announce(f"first-admin: {self._deps.first_admin_url}#{code}")

    def _warn_of_roles(self) -> None:
        """Roles can be created later, so a name that is not there may be a mistake or not."""
        table = read_group_table(self._deps.config.oidc.bindings)
        warn_of_missing_roles(self._state, itertools.chain.from_iterable(table.values()))

    def _unreadable(self) -> list[Draft]:
        """The events of unreadable documents: each new leader reports them again until they are repaired, and
        of many only the first ones."""
        return [
            Draft(type=EventType.DOCUMENT_UNREADABLE, subject=str(each), data=msgspec.to_builtins(each))
            for each in itertools.islice(self._state.quarantine, _REPORTED_UNREADABLE)
        ]

    def _housekeeping(self, user_sessions: UserSessions) -> Housekeeping:
        return Housekeeping(
            user_sessions=user_sessions,
            config=self._deps.config,
            store=self._deps.store,
            ledger=self._ledger,
            epoch=self._deps.epoch,
            clock=self._deps.clock,
        )

    def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task of this term. After a bug in it, which is logged, it is restarted: instances must not be
        left without supervision."""
        tasks = Tasks()
        tasks.spawn(_restarted(name, run), name=name)
        self._stack.push_async_callback(tasks.close)


async def _restarted(name: str, run: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            return await run()
        except Exception:
            _log.exception("term_task.failed", task=name)
            await asyncio.sleep(_RESTART_SECONDS)


class LatestMemory:
    """The memory of the present term, or of the last one: the newest state of the store that this controller
    has read."""

    def __init__(self) -> None:
        self._state = ClusterState()

    def new(self) -> ClusterState:
        """The empty memory of a new term."""
        self._state = ClusterState()
        return self._state

    def commit_number(self) -> int:
        """The number of the last commit that this controller made or read as the leader; 0 before it leads."""
        return self._state.number


class _Publishing:
    """The event hub as a follower of commits."""

    def __init__(self, hub: EventHub) -> None:
        self.follow: Final = hub.publish
        self.resync: Final = hub.resync
