"""A whole cluster inside one process: real controllers and daemons, real sockets and certificates.

Faster than processes and easier to inspect; tests that need a kill or a second interpreter use
`corral.testing.processes`. Daemons run workloads as the user of the tests and without control groups unless a
test sets otherwise; when the cluster ends, so does every instance it left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self

import msgspec

from corral.cli.executed.program import PROGRAM
from corral.controller.accounts.passwords import HashCost
from corral.controller.app import ControllerApp, open_controller
from corral.controller.distribution.node_needs import Needs
from corral.daemon.app import DaemonApp, open_daemon
from corral.domain.groups.group import ConfigFormat
from corral.domain.groups.plans import PlanArtifact
from corral.domain.ids import NodeId
from corral.domain.node_states import NodeState
from corral.domain.records import LogRecord
from corral.system.aio.tasks import first_of, set_within
from corral.system.clock import Clock
from corral.system.config import load_controller, load_daemon
from corral.system.controller_config import ControllerConfig
from corral.system.daemon_config import DaemonConfig
from corral.system.log_ring import LogRing
from corral.testing.api_calls import call
from corral.testing.cgroup_cleanup import drop_groups
from corral.testing.event_checks import event_faults
from corral.testing.fault_proxy import FaultProxy
from corral.testing.reaper import reap
from corral.testing.refusal_checks import refusal_faults
from corral.testing.survivors import now_in_ticks
from corral.testing.waiting import eventually


class RecordedLog:
    """The second adapter of `LogPort`. `levels` remembers every switch."""

    def __init__(self) -> None:
        self.ring = LogRing(capacity=1000)
        self.levels: list[str] = []
        self._sinks: list[Callable[[LogRecord], None]] = []

    def set_level(self, level: str) -> None:
        self.levels.append(level)

    def add_sink(self, sink: Callable[[LogRecord], None]) -> Callable[[], None]:
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    def write(self, message: str, *, level: str = "INFO", **fields: str) -> None:
        """Log a record as the service itself would."""
        record = LogRecord(
            at=dt.datetime.now(dt.UTC), level=level, logger="test", message=message, fields=fields
        )
        self.ring.append(record)
        for sink in list(self._sinks):
            sink(record)


CHEAP_HASHES: Final = HashCost(memory_kib=64, passes=1)
FAST: Final = {
    "http.listen": "127.0.0.1:0",
    "grpc.listen": "127.0.0.1:0",
    "link.heartbeat_seconds": 1,
    "link.missed_pongs": 30,  # on a busy machine a test, or its scripted daemon, is silent for seconds
    "bootstrap.rate_per_minute": 10_000,
    "reconcile.observe_seconds": 1,
    "reconcile.offline_after_seconds": 1,
    "reconcile.resend_seconds": 1,
    "shutdown.budget_seconds": 5,
    **{
        f"http.limits.{name}": 0
        for name in ("requests_per_second", "logins_per_minute", "streams", "tickets", "uploads")
    },
}
FAST_DAEMON: Final = {
    "link.reconnect_max_seconds": 0.2,
    "link.status_seconds": 0.5,
    "instances.development": True,
    "instances.cgroups": "none",
    "shutdown.budget_seconds": 5,
}

_BLOB_CHUNK: Final = 1024 * 1024


def controller_config(data: pathlib.Path, **flags: Any) -> ControllerConfig:
    """A configuration for tests; keys as in the file, with `__` for the dot."""
    config, _ = load_controller(None, {}, {**FAST, "data": str(data), **_dotted(flags)})
    return config


def daemon_config(data: pathlib.Path, **flags: Any) -> DaemonConfig:
    config, _ = load_daemon(None, {}, {**FAST_DAEMON, "data": str(data), **_dotted(flags)})
    return config


def _dotted(flags: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in flags.items()}


class LocalController:
    """One controller and a client with its first administrator's token."""

    def __init__(self, app: ControllerApp, data: pathlib.Path, log: RecordedLog) -> None:
        self.app = app
        self.data = data
        self.log = log
        self._grants = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return self.app.announcement()

    @property
    def grpc_address(self) -> str:
        return self.app.own.grpc

    @property
    def bootstrap_address(self) -> str:
        return self.app.own.bootstrap

    @property
    def admin_token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    async def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, token: str = ""
    ) -> Any:
        """One request as the administrator, or with another token, the way the CLI makes it."""
        authority = self.app.config.authority_path
        ca_file = str(authority) if authority.exists() else None
        return await call(self.url, token or self.admin_token, method, path, body, ca_file=ca_file)

    async def put_blob(self, content: bytes, *, node: str) -> str:
        """A blob in the store that this node may read; its digest."""

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(content), _BLOB_CHUNK):
                yield content[start : start + _BLOB_CHUNK]

        digest = (await self.app.store.blobs.put_blob(chunks())).digest
        artifact = PlanArtifact(file="blob", sha256=digest)
        self._grant(node, Needs(artifacts=frozenset({(artifact, ConfigFormat.NONE)})))
        return digest

    def lend_template(self, name: str, hash: str, *, node: str) -> None:
        """This node may have this version, as if a group that needs it could run there."""
        self._grant(node, Needs(templates=frozenset({(name, hash)})))

    def _grant(self, node: str, needs: Needs) -> None:
        assert self.app.role.term is not None
        self._grants.enter_context(self.app.role.term.distribution.access.granted(NodeId(node), needs))

    async def join_token(self, node_id: str | None = None, **more: Any) -> str:
        body = {**({"node_id": node_id} if node_id else {}), **more}
        answer = await self.call("POST", "/api/v1/nodes/join-tokens", body)
        return str(answer["token"])

    def node_state(self, node_id: str) -> NodeState | None:
        term = self.app.role.term
        stored = term.state.nodes.find(node_id) if term else None
        return stored.record.state if stored else None

    async def wait_for_node(self, node_id: str, state: NodeState) -> None:
        await eventually(
            lambda: self.node_state(node_id) is state,
            state=lambda: f"node {node_id} is {self.node_state(node_id)}",
        )


class LocalDaemon:
    def __init__(self, app: DaemonApp, config: DaemonConfig, log: RecordedLog) -> None:
        self.app = app
        self.config = config
        self.log = log

    @property
    def node_id(self) -> NodeId:
        return self.app.node_id


class LocalCluster:
    """Controllers and daemons that end with the test. Use as `async with`. At the end every event that was stored has to
    be as its schema documents it, and every refusal by HTTP has a status that its route describes."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._controllers: list[ControllerApp] = []
        self._stack = contextlib.AsyncExitStack()
        self._since = now_in_ticks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failed: object, *_: object) -> None:
        undocumented = [] if failed else [fault for app in self._controllers for fault in event_faults(app)]
        undescribed = [] if failed else [fault for app in self._controllers for fault in refusal_faults(app)]
        try:
            await self._stack.aclose()
        finally:
            await asyncio.to_thread(reap, self._directory, since=self._since)
            await asyncio.to_thread(drop_groups, self._directory)
        assert not undocumented, f"events differ from their schemas: {undocumented[:5]}"
        assert not undescribed, f"refusals that refusals.toml does not have: {undescribed[:5]}"

    async def controller(
        self,
        name: str = "controller",
        *,
        clock: Clock | None = None,
        hash_cost: HashCost | None = None,
        wait: bool = True,
        via: FaultProxy | None = None,
        found_cluster: bool = False,
        accept_older_store: bool = False,
        **flags: Any,
    ) -> LocalController:
        """Start a controller; with `wait` it leads or is on standby when this returns. With `via` all daemons
        know it only by the proxy's address. With `CHEAP_HASHES` passwords are hashed quickly; it refuses the hashes
        of others then, which cost more."""
        if via is not None:
            flags["grpc__advertise"] = via.address
        config = controller_config(self._directory / name, **flags)
        log = RecordedLog()
        opened = open_controller(
            config,
            logs=log,
            clock=clock,
            hash_cost=hash_cost,
            commands=PROGRAM,
            found_cluster=found_cluster,
            accept_older_store=accept_older_store,
        )
        app = await self._stack.enter_async_context(opened)
        self._controllers.append(app)
        if via is not None:
            via.retarget(app.grpc_listen)
        if wait:
            await self._settle(app)
        return LocalController(app, config.data, log)

    @staticmethod
    async def _settle(app: ControllerApp) -> None:
        ended, *_ = await first_of(app.run(), app.ready, timeout=20, name="testing/run")
        if ended is not None:
            ended.result()
        assert app.ready.is_set(), "the controller was not ready within 20 s"

    async def daemon(
        self,
        node_id: str,
        controller: LocalController | None,
        *,
        clock: Clock | None = None,
        connect: bool = True,
        join: str | None = None,
        **flags: Any,
    ) -> LocalDaemon:
        """Enrol and start a daemon. Without a controller its data directory must hold an identity already,
        and `controllers` are the addresses to dial."""
        known = {"controllers": [controller.grpc_address]} if controller else {}
        settings = {**known, "node__id": node_id, **flags}
        config = daemon_config(self._directory / node_id, **settings)
        enrolled = (config.data / "identity.json").exists()
        if controller and not enrolled and join is None:
            join = await controller.join_token(node_id)
        daemon = await self._daemon(config, join=join, clock=clock)
        if connect:
            assert await set_within(daemon.app.ready, 20), "the daemon was not ready within 20 s"
        return daemon

    async def _daemon(self, config: DaemonConfig, *, join: str | None, clock: Clock | None) -> LocalDaemon:
        log = RecordedLog()
        opened = open_daemon(config, logs=log, join=join, clock=clock)
        app = await self._stack.enter_async_context(opened)
        return LocalDaemon(app, config, log)

    async def restart(self, daemon: LocalDaemon, *, join: str | None = None, **flags: Any) -> LocalDaemon:
        """Stop a daemon and start another on its data directory."""
        await daemon.app.stop()
        config = msgspec.structs.replace(daemon.config, **flags)
        return await self._daemon(config, join=join, clock=None)
