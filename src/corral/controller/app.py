"""Composition of the controller: `open_controller` opens everything in order and closes it in the stages of the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import structlog

from corral.controller.accounts.passwords import HashCost, Passwords
from corral.controller.commands.command_process import CommandProgram, CommandRunner
from corral.controller.http.messages.request import AsgiApp
from corral.controller.http.pipeline.api import Api
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.routes import ROUTES
from corral.controller.http.server.access_log import AccessLog
from corral.controller.http.server.cors import CrossOrigin
from corral.controller.http.server.http_server import HttpServer
from corral.controller.http.server.private_socket import serve_commands
from corral.controller.instances.orders import ApiAddress
from corral.controller.sessions.link_server import LinkServer, ServerCertificates
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Step
from corral.controller.term.cluster_init import ADMIN_TOKEN_FILE, open_authority, trusted_ca_pem
from corral.controller.term.controller_role import Cluster, ControllerInfo, ControllerRole, LinkDirectory
from corral.controller.term.http_tls import HttpTls
from corral.controller.term.leader_term import LatestMemory, LeaderTerm, open_term
from corral.controller.term.leadership_loop import EpochRaiser, LeadershipLoop
from corral.controller.term.listen_addresses import ChosenPorts, first_admin_url, with_ports
from corral.controller.term.lost_store import StorePosition, refuse_lost_database
from corral.controller.term.process_context import process_context
from corral.controller.term.term_services import TermDeps
from corral.domain.ids import Epoch
from corral.signing import open_verifier
from corral.store.engine_selection import open_store
from corral.store.port import Store
from corral.store.store_errors import StorageFailed
from corral.system.addresses import Address, parse_address, raise_descriptors
from corral.system.aio.tasks import Tasks, first_of
from corral.system.clock import Clock, SystemClock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import Entropy, SystemEntropy, new_id
from corral.system.files import DirectoryLock, make_directory
from corral.system.log_ring import LogPort
from corral.system.logger import log_plainly
from corral.system.logs import start_logging
from corral.system.service.loop_watch import LoopWatch
from corral.system.service.process import Shutdown, run_service
from corral.system.threads import to_end

_ROLE: Final = "controller"
_STORAGE_FAILED: Final = 70
_STAGE_SHARES: Final = {"lead": 0.7, "link": 0.5, "lease": 0.5, "rest": 1.0}
"""The stages of the shutdown in their order, each with its share of what is left of the budget."""
_log = structlog.get_logger("corral.controller")


class ControllerApp:
    """A controller that is open: it answers on HTTP, and leads or waits for the lease. Made by `open_controller`."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        store: Store,
        role: ControllerRole,
        own: ControllerInfo,
        clock: Clock,
        ready: asyncio.Event,
        leading: asyncio.Task[None],
        shutdown: Shutdown,
    ) -> None:
        """`config` has every port decided."""
        self.config: Final = config
        self.store: Final = store
        self.role: Final = role
        self.own: Final = own
        self.clock: Final = clock
        self.ready: Final = ready
        self._leading = leading
        self._shutdown = shutdown

    @property
    def grpc_listen(self) -> str:
        """The address where daemons connect, with the real port."""
        return self.config.grpc.listen

    def announcement(self) -> str:
        return f"{self.config.http.scheme}://{self.own.http}"

    async def run(self) -> None:
        """Return when this controller is ordered to end; raise when leading fails in a way that only an operator can mend."""
        await first_of(self._leading, self.role.ordered_to_end, name="controller/run")
        if self._leading.done():
            self._leading.result()

    async def stop(self) -> None:
        """Stop leading, close the link, give the lease back, close HTTP and the store; as leaving `open_controller`."""
        await self._shutdown.run()


@contextlib.asynccontextmanager
async def open_controller(
    config: ControllerConfig,
    *,
    logs: LogPort,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    hash_cost: HashCost | None = None,
    commands: CommandProgram | None = None,
    found_cluster: bool = False,
    accept_older_store: bool = False,
) -> AsyncIterator[ControllerApp]:
    """A controller on its data directory, until the context is left.

    `found_cluster`: create a new cluster also where there was one; `accept_older_store`: go on with a store that has
    lost what this controller has seen. Both are for one start. `commands` runs commands of callers. `hash_cost` is for tests.
    """
    clock, entropy = clock or SystemClock(), entropy or SystemEntropy()
    shutdown = Shutdown(_STAGE_SHARES, budget=config.shutdown.budget_seconds, clock=clock)
    opening = _ControllerStart(
        config,
        logs=logs,
        clock=clock,
        entropy=entropy,
        hash_cost=hash_cost,
        commands=CommandRunner(commands, data=config.data) if commands else None,
        shutdown=shutdown,
    )
    try:
        yield await opening.open(found_cluster=found_cluster, accept_older_store=accept_older_store)
    finally:
        await shutdown.run()


class _ControllerStart:
    """The order in which a controller is opened. Each step adds its closing to the shutdown at once."""

    def __init__(
        self,
        config: ControllerConfig,
        *,
        logs: LogPort,
        clock: Clock,
        entropy: Entropy,
        hash_cost: HashCost | None,
        commands: CommandRunner | None,
        shutdown: Shutdown,
    ) -> None:
        self._config = config
        self._logs = logs
        self._clock = clock
        self._entropy = entropy
        self._hash_cost = hash_cost
        self._commands = commands
        self._shutdown = shutdown
        self._rest = contextlib.AsyncExitStack()
        self._ports = ChosenPorts()
        self.tls = HttpTls(config, clock=clock)

    async def open(self, *, found_cluster: bool, accept_older_store: bool) -> ControllerApp:
        """Open the store, answer on HTTP, and begin to lead or to wait for the lease."""
        make_directory(self._config.data)
        self._shutdown.at("rest", self._rest.aclose)
        self._rest.enter_context(DirectoryLock(self._config.data, _ROLE))
        verifier = await to_end(open_verifier, self._config.modules.signing, clock=self._clock)
        refuse_lost_database(self._config, admin_token=ADMIN_TOKEN_FILE, on_purpose=found_cluster)
        memory = LatestMemory()
        store = await self._open_store(memory, accept_older=accept_older_store)
        watch = await self._rest.enter_async_context(LoopWatch())
        role = ControllerRole(holder=new_id("controller", self._entropy))
        setting = self._process_context(role)
        setting.metrics.watch_lag(watch.lag)
        http = await self._start_http(role, setting)
        # gRPC ports must be known before this controller leads: the lease carries them to the other controllers.
        config = with_ports(self._config, self._rest.enter_context(self._ports))
        own = ControllerInfo.of(config, http)
        link, raiser, ready = LinkDirectory(role, own), EpochRaiser(role), asyncio.Event()
        deps = functools.partial(
            TermDeps,
            holder=role.holder,
            config=config,
            store=store,
            setting=setting,
            cluster=Cluster(role=role, own=own, link=link, store=store.name, raise_epoch=raiser.raise_epoch),
            verifier=verifier,
            clock=self._clock,
            entropy=self._entropy,
            api=ApiAddress.of(config.http, own.http),
            ahead_of_store=set(),
            first_admin_url=first_admin_url(config.http, own.http),
        )
        terms = _Terms(deps, memory=memory, found_cluster=found_cluster)
        loop = LeadershipLoop(
            store=store,
            role=role,
            own=own,
            raiser=raiser,
            lease=config.lease,
            clock=self._clock,
            open_term=terms.open,
            open_link=_LinkOpening(config, link, role.holder, terms, self).open,
            ready=ready,
        )
        return ControllerApp(
            config=config,
            store=store,
            role=role,
            own=own,
            clock=self._clock,
            ready=ready,
            leading=self._lead(loop),
            shutdown=self._shutdown,
        )

    async def _open_store(self, memory: LatestMemory, *, accept_older: bool) -> Store:
        position = StorePosition(self._config.data)
        store = await open_store(self._config.store.url, data=self._config.data)
        self._rest.push_async_callback(store.close)
        await position.check(store.reads, accept=accept_older)

        async def note_position() -> None:
            await position.note(memory.commit_number())

        self._rest.push_async_callback(note_position)
        tasks = await self._rest.enter_async_context(Tasks())
        tasks.spawn(position.keep(memory.commit_number), name="controller/position")
        return store

    def _process_context(self, role: ControllerRole) -> ProcessContext:
        passwords = Passwords(entropy=self._entropy, cost=self._hash_cost)
        self._rest.push_async_callback(passwords.close)
        return process_context(
            self._config,
            passwords=passwords,
            logs=self._logs,
            commands=self._commands,
            holder=role.holder,
            leader=role.leader_http,
            clock=self._clock,
            entropy=self._entropy,
        )

    async def _start_http(self, role: ControllerRole, setting: ProcessContext) -> Address:
        """Answer on HTTP; the address, with its real port."""
        api = Api(setting=setting, gate=role.http_gate, routes=ROUTES)
        host, port = parse_address(self._config.http.listen, any_port=True)
        origins = self._config.http.cors.origins
        app: AsgiApp = CrossOrigin(api, origins=origins) if origins else api
        if self._config.http.access_log:
            app = access_log = AccessLog(app)
            self._rest.callback(access_log.close)
        self._rest.push_async_callback(self.tls.close)
        await self.tls.open()
        server = HttpServer(
            app,
            host=host,
            port=port,
            ssl_context=self.tls.context,
            hsts_seconds=self._config.http.tls.hsts_seconds,
            limits=self._config.http.limits,
            proxies=[ipaddress.ip_network(each) for each in self._config.http.trusted_proxies],
        )
        setting.metrics.watch_connections(server.connections)
        self._rest.push_async_callback(server.stop)
        await server.start()
        await self._rest.enter_async_context(serve_commands(app, self._commands, self._config.http.limits))
        return server.address

    def _lead(self, loop: LeadershipLoop) -> asyncio.Task[None]:
        tasks = Tasks()
        self._shutdown.at("lead", tasks.close)
        self._shutdown.at("lease", loop.release)
        return tasks.spawn(loop.run(), name="controller/lead", awaited=True)

    async def start_link(
        self, config: ControllerConfig, lookup: LinkDirectory, certificates: ServerCertificates
    ) -> None:
        """Listen for daemons and joining hosts until the shutdown."""
        server = LinkServer(
            config=config,
            lookup=lookup,
            certificates=certificates,
            clock=self._clock,
            entropy=self._entropy,
        )
        self._rest.push_async_callback(server.stop)
        await server.start()
        self._ports.close()
        self._shutdown.at("link", server.stop)

    def certificates(self, config: ControllerConfig, state: ClusterState, holder: str) -> ServerCertificates:
        return ServerCertificates(
            authority=open_authority(state, key_path=config.cluster_key_path, clock=self._clock),
            holder=holder,
            trusted_ca_pem=trusted_ca_pem(state),
            clock=self._clock,
        )


class _Terms:
    """Opens the terms of this process, one after the other."""

    def __init__(self, deps: Callable[..., TermDeps], *, memory: LatestMemory, found_cluster: bool) -> None:
        self._deps = deps
        self._memory = memory
        self._found_cluster = found_cluster

    def open(
        self, epoch: Epoch, opening: Sequence[Step]
    ) -> contextlib.AbstractAsyncContextManager[LeaderTerm]:
        deps = self._deps(epoch=epoch, found_cluster=self._found_cluster)
        return open_term(deps, state=self._memory.new(), on_fatal=_end_process, opening=opening)

    def cluster_exists(self) -> None:
        """A later term of this process creates no cluster."""
        self._found_cluster = False


class _LinkOpening:
    """Opens the link server once the cluster's authority is known; it outlives terms."""

    def __init__(
        self,
        config: ControllerConfig,
        lookup: LinkDirectory,
        holder: str,
        terms: _Terms,
        opening: _ControllerStart,
    ) -> None:
        self._config = config
        self._lookup = lookup
        self._holder = holder
        self._terms = terms
        self._opening = opening
        self._listens = False

    async def open(self, state: ClusterState) -> None:
        """Idempotent."""
        self._terms.cluster_exists()
        await self._opening.tls.use_authority(state)
        if not self._listens:
            certificates = self._opening.certificates(self._config, state, self._holder)
            await self._opening.start_link(self._config, self._lookup, certificates)
            self._listens = True


def _end_process(error: BaseException) -> None:
    """The state on disk is no longer certain, or memory no longer equals it: only a fresh start helps."""
    _log.critical("controller.failed", exc_info=error)
    _print_fatal(error)
    os._exit(_STORAGE_FAILED)


def _print_fatal(error: BaseException) -> None:
    hint = f"hint: {error.hint}\n" if isinstance(error, StorageFailed) else ""
    sys.stderr.write(f"fatal: {error}\n{hint}")


def run_controller(
    config: ControllerConfig,
    *,
    commands: CommandProgram | None = None,
    parent_fd: int | None = None,
    found_cluster: bool = False,
    accept_older_store: bool = False,
) -> int:
    """Run a controller until it is asked to stop; returns the exit code."""

    def open_service() -> contextlib.AbstractAsyncContextManager[ControllerApp]:
        return open_controller(
            config,
            logs=logs,
            commands=commands,
            found_cluster=found_cluster,
            accept_older_store=accept_older_store,
        )

    log_plainly(sys.stderr)
    make_directory(config.data)
    raise_descriptors()
    with start_logging(
        role=_ROLE,
        directory=config.data / "logs",
        level=config.log.level,
        format=config.log.format,
        ring_records=config.log.ring_records,
    ) as logs:
        try:
            return run_service(open_service, dumps=config.data / "logs", parent_fd=parent_fd)
        except StorageFailed as error:
            _log.critical("controller_storage.failed", reason=str(error))
            _print_fatal(error)
            return _STORAGE_FAILED
