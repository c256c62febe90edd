"""The controller, put together: a store, an HTTP side, a gRPC side, and the loop that leads."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import sys
from collections.abc import Sequence
from typing import Final, Self

import structlog
from prometheus_client import Gauge

from corral.controller.http.api import Api
from corral.controller.http.cors import CrossOrigin
from corral.controller.http.routes import ROUTES
from corral.controller.http.server import HttpServer
from corral.controller.http.setting import Setting
from corral.controller.sessions.link_server import LinkServer, ServerCertificates
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Step
from corral.controller.term.cluster_init import ADMIN_TOKEN_FILE, open_authority, trusted_ca_pem
from corral.controller.term.controller_role import Cluster, ControllerInfo, ControllerRole
from corral.controller.term.leader_term import LeaderTerm
from corral.controller.term.leadership_loop import LeadershipLoop
from corral.controller.term.listen_addresses import choose_port, reachable, with_ports
from corral.controller.term.lost_store import StorePosition, refuse_lost_database
from corral.controller.term.term_services import TermDeps
from corral.domain.ids import Epoch
from corral.signing import Verifier, open_verifier
from corral.store.engine_selection import open_store
from corral.store.port import Store
from corral.store.store_errors import StorageFailed
from corral.system.addresses import Address, parse_address, raise_descriptors
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock, SystemClock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import Entropy, SystemEntropy, new_id
from corral.system.files import DirectoryLock, make_directory
from corral.system.log_ring import LogPort
from corral.system.logs import start_logging
from corral.system.service.loop_watch import LoopWatch
from corral.system.service.process import Stage, run_service, run_stages
from corral.system.threads import to_end

_ROLE: Final = "controller"
_STORAGE_FAILED: Final = 70
_log = structlog.get_logger("corral.controller")


class ControllerApp:
    """One controller on one data directory. `start`, wait for `ready`, then `stop`."""

    def __init__(
        self,
        config: ControllerConfig,
        *,
        logs: LogPort,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        found_cluster: bool = False,
        accept_older_store: bool = False,
    ) -> None:
        """`found_cluster`: make a new cluster also where there was one; `accept_older_store`: go on with a store that
        has lost what this controller has seen. Both are meant for one start."""
        self._config = config
        self._found_cluster = found_cluster
        self._accept_older_store = accept_older_store
        self._position = StorePosition(config.data)
        self._logs = logs
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._stack = contextlib.AsyncExitStack()
        self._loop: LeadershipLoop | None = None
        self._leading = Tasks()
        self._leading_task: asyncio.Task[None] | None = None
        self._state: ClusterState | None = None
        self._ahead_of_store: set[str] = set()
        self._link_server: LinkServer | None = None
        self._store: Store
        self._setting: Setting
        self._cluster: Cluster
        self._verifier: Verifier
        self.place = ControllerRole(holder=new_id("controller", self._entropy))
        self.ready = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the store, answer on HTTP, and begin to lead or to wait for it."""
        make_directory(self._config.data)
        try:
            self._stack.enter_context(DirectoryLock(self._config.data, _ROLE))
            self._verifier = await to_end(open_verifier, self._config.modules.signing, clock=self._clock)
            await self._open_store()
            watch = await self._stack.enter_async_context(LoopWatch())
            self._setting = self._make_setting()
            self._show_lag(watch)
            self._loop = self._make_loop()
            raise_epoch = self._loop.raise_epoch
            self._cluster = Cluster(place=self.place, store=self._store.name, raise_epoch=raise_epoch)
            await self._start_http()
            self._leading_task = self._leading.spawn(self._loop.run(), name="controller/lead", awaited=True)
        except BaseException:
            await self.stop()
            raise

    async def _open_store(self) -> None:
        refuse_lost_database(self._config, admin_token=ADMIN_TOKEN_FILE, on_purpose=self._found_cluster)
        self._store = await open_store(self._config.store.url, data=self._config.data)
        self._stack.push_async_callback(self._store.close)
        await self._position.check(self._store.reads, accept=self._accept_older_store)
        self._stack.push_async_callback(self._note_position)
        tasks = await self._stack.enter_async_context(Tasks())
        tasks.spawn(self._position.keep(self._commit_number), name="controller/position")

    async def _note_position(self) -> None:
        await self._position.note(self._commit_number())

    def _commit_number(self) -> int:
        """Of the last commit that this controller has made or read as the leader; 0 before it leads."""
        return self._state.number if self._state is not None else 0

    def _make_setting(self) -> Setting:
        return Setting(
            clock=self._clock,
            entropy=self._entropy,
            log_ring=self._logs.ring,
            set_log_level=self._logs.set_level,
            scrape_networks=[ipaddress.ip_network(n) for n in self._config.metrics.scrape_networks],
            body_limit=self._config.http.body_limit_bytes,
            limits=self._config.http.limits,
            templates=self._config.templates,
            leader=self.place.leader_http,
            instances_are_root=self._config.instances.development and os.geteuid() == 0,
        )

    def _show_lag(self, watch: LoopWatch) -> None:
        lag = Gauge(
            "corral_loop_lag_seconds", "Longest delay of the loop.", registry=self._setting.metrics.registry
        )
        lag.set_function(watch.lag)

    def _make_loop(self) -> LeadershipLoop:
        return LeadershipLoop(
            store=self._store,
            place=self.place,
            lease=self._config.lease,
            clock=self._clock,
            make_term=self._make_term,
            open_link=self._start_link_server,
            ready=self.ready,
        )

    async def _start_http(self) -> None:
        api = Api(setting=self._setting, gate=self.place.http_gate, routes=ROUTES)
        host, port = parse_address(self._config.http.listen, any_port=True)
        origins = self._config.http.cors.origins
        app = CrossOrigin(api, origins=origins) if origins else api
        server = HttpServer(app, host=host, port=port, limits=self._config.http.limits)
        self._setting.metrics.watch_connections(server.connections)
        await server.start()
        self._stack.push_async_callback(server.stop)
        # gRPC ports must be known before we lead: the lease carries them to the other controllers.
        grpc_listen = choose_port(self._config.grpc.listen)
        self._config = with_ports(self._config, grpc_listen=grpc_listen)
        self.place.own = ControllerInfo(
            http=self._config.http.advertise or reachable(str(Address(*server.address))),
            grpc=self._config.grpc.advertise or reachable(grpc_listen),
            bootstrap=self._bootstrap_address(grpc_listen),
        )

    def _bootstrap_address(self, grpc_listen: str) -> str:
        if not self._config.bootstrap.enabled:
            return ""
        host = parse_address(self._config.grpc.advertise or reachable(grpc_listen)).host
        return str(Address(host, self._config.bootstrap_address.port))

    @property
    def grpc_listen(self) -> str:
        """Where daemons connect, with the real port."""
        return self._config.grpc.listen

    def announcement(self) -> str:
        return f"http://{self.place.own.http}"

    async def run(self) -> None:
        """Until leading fails in a way that only a person can mend; normally for ever."""
        assert self._leading_task is not None
        await asyncio.shield(self._leading_task)

    def _make_term(self, epoch: Epoch, opening: Sequence[Step]) -> LeaderTerm:
        mandate = TermDeps(
            epoch=epoch,
            holder=self.place.holder,
            config=self._config,
            store=self._store,
            setting=self._setting,
            cluster=self._cluster,
            verifier=self._verifier,
            clock=self._clock,
            entropy=self._entropy,
            api_url=f"http://{self.place.own.http}",
            found_cluster=self._found_cluster,
            ahead_of_store=self._ahead_of_store,
        )
        term = LeaderTerm(mandate, on_fatal=_end_process, opening=opening)
        self._state = term.state
        return term

    async def _start_link_server(self, state: ClusterState) -> None:
        self._found_cluster = False  # it is there: a later term of this process founds none
        if self._link_server is not None:
            return
        authority = open_authority(state, key_path=self._config.cluster_key_path, clock=self._clock)
        certificates = ServerCertificates(
            authority=authority,
            holder=self.place.holder,
            trusted_ca_pem=trusted_ca_pem(state),
            clock=self._clock,
        )
        server = LinkServer(
            config=self._config,
            lookup=self.place,
            certificates=certificates,
            clock=self._clock,
            entropy=self._entropy,
        )
        self._stack.push_async_callback(server.stop)
        await server.start()
        self._link_server = server

    async def stop(self) -> None:
        """End in order: stop leading, close the doors, give the lease back, close the store."""
        stages = [
            Stage(name="lead", share=0.7, action=self._stop_leading),
            Stage(name="link", share=0.5, action=self._stop_link_server),
            Stage(name="lease", share=0.5, action=self._release),
            Stage(name="rest", share=1.0, action=self._stack.aclose),
        ]
        await run_stages(stages, budget=self._config.shutdown.budget_seconds, clock=self._clock)

    async def _stop_leading(self) -> None:
        await self._leading.close()

    async def _stop_link_server(self) -> None:
        if self._link_server is not None:
            await self._link_server.stop()

    async def _release(self) -> None:
        if self._loop is not None:
            await self._loop.release()


def _end_process(error: BaseException) -> None:
    """What is on disk is no longer certain, or memory no longer equals it: only a fresh start helps."""
    _log.critical("controller.fatal", exc_info=error)
    _say_fatal(error)
    os._exit(_STORAGE_FAILED)


def _say_fatal(error: BaseException) -> None:
    hint = f"hint: {error.hint}\n" if isinstance(error, StorageFailed) else ""
    sys.stderr.write(f"fatal: {error}\n{hint}")


def run_controller(
    config: ControllerConfig,
    *,
    parent_fd: int | None = None,
    found_cluster: bool = False,
    accept_older_store: bool = False,
) -> int:
    """Run a controller until it is told to stop; returns the exit code."""

    def make() -> ControllerApp:
        return ControllerApp(
            config, logs=logs, found_cluster=found_cluster, accept_older_store=accept_older_store
        )

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
            return run_service(make, dumps=config.data / "logs", parent_fd=parent_fd)
        except StorageFailed as error:
            _log.critical("controller.storage_failed", reason=str(error))
            _say_fatal(error)
            return _STORAGE_FAILED
