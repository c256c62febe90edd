"""The API over real sockets and a real store; only the daemons' sessions and the cluster's
leadership are stand-ins, behind the same ports."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import io
import ipaddress
import pathlib
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import msgspec
from prometheus_client import CollectorRegistry
from stand_in_distribution import StandInDistribution
from stand_in_node import StandInNode

from corral.controller.accounts.oidc.cookie import cookie_key
from corral.controller.accounts.oidc.login import OidcLogin
from corral.controller.accounts.passwords import HashCost, Passwords
from corral.controller.consoles.service import Consoles
from corral.controller.events.hub import RING_BYTES, RING_EVENTS, EventHub
from corral.controller.http.pipeline.api import Api
from corral.controller.http.pipeline.api_context import ProcessContext, TermContext
from corral.controller.http.pipeline.browser_checks import BrowserChecks
from corral.controller.http.pipeline.route_table import Route
from corral.controller.http.pipeline.term_ports import IssuedCertificate, LeaderView, MemberView
from corral.controller.http.routes import ROUTES
from corral.controller.http.server.http_server import HttpServer
from corral.controller.instances.service import InstanceService
from corral.controller.instances.start_identity import ticket_keys
from corral.controller.modules.components import ModuleComponents
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.frame_receivers import RefusedReports
from corral.controller.sessions.live_nodes import LiveNode
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES, NODES
from corral.controller.state.ledger import Actor, Ledger
from corral.controller.templates.library import TemplateLibrary
from corral.controller.term.cluster_init import found_cluster
from corral.controller.term.process_context import site_for
from corral.controller.workload.service import Workloads
from corral.controller.workload.tokens import workload_key
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import InstanceRecord, Readiness
from corral.domain.ids import Epoch, NodeId, SessionId
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState
from corral.domain.permissions import Role
from corral.domain.records import NodeRecord
from corral.pki.keys import ClusterKey, read_csr
from corral.signing import open_verifier
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import ABSENT, Commit, Store
from corral.store.writer import Writer, WriterTiming
from corral.system.clock import SystemClock
from corral.system.controller_config import ModulesSection, PlacementSection, TemplatesSection
from corral.system.entropy import SystemEntropy
from corral.system.http_config import HttpLimitsSection
from corral.system.oidc_config import OidcSection
from corral.testing.cluster import RecordedLog
from corral.testing.failing_store import FailingStore
from corral.testing.refusal_checks import WatchedApi

DEADLINE = 15.0
PATIENCE = 0.5
"""So long followers of consoles wait for a node that is away."""
TOKEN_LIFE = dt.timedelta(minutes=5)


MODULES = ModulesSection(max_archive_bytes=2 * 1024 * 1024)
CHEAP = HashCost(memory_kib=64, passes=1)
NO_LIMITS = HttpLimitsSection(requests_per_second=0, logins_per_minute=0, streams=0, tickets=0, uploads=0)
SMALL = TemplatesSection(max_bytes=4 * 1024 * 1024, max_files=200, keep_versions=5)


def tar_gz(files: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """An archive of these contents; what is an entry already goes in as it is."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class ShiftedClock(SystemClock):
    """The machine's clock, and hands to move its wall time and the time that has passed."""

    def __init__(self) -> None:
        self.offset = dt.timedelta()
        self.elapsed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.elapsed

    def now(self) -> dt.datetime:
        return super().now() + self.offset


class Sessions:
    """Live nodes as a test wants them."""

    def __init__(self) -> None:
        self.present: dict[NodeId, LiveNode] = {}
        self.links: dict[NodeId, StandInNode] = {}
        self.levels: list[tuple[NodeId, str]] = []
        self.ahead_of_store: set[str] = set()

    def find(self, node_id: NodeId) -> StandInNode | None:
        return self.links.get(node_id)

    def left_alone(self) -> dict[str, str]:
        return {}

    def live(self, node_id: NodeId) -> LiveNode | None:
        return self.present.get(node_id)

    def set_log_level(self, node_id: NodeId, level: str) -> None:
        self.levels.append((node_id, level))

    def connect(self, name: str) -> LiveNode:
        now = dt.datetime.now(dt.UTC)
        live = LiveNode(
            session_id=SessionId(f"session-{name}"),
            connected_at=now,
            last_seen=now,
            cpu_usage=0.25,
            memory_mb=4096,
            used_memory_mb=1024,
            free_disk_mb=9000,
            instance_count=3,
            used_ports=(30000, 30001),
        )
        self.present[NodeId(name)] = live
        return live


class Uploads:
    """Transfers that were allowed, by their id."""

    def __init__(self) -> None:
        self.expected: dict[str, asyncio.Future[bytes]] = {}

    def expect_bytes(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> asyncio.Future[bytes]:
        del node_id, max_bytes
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.expected[transfer_id] = future
        future.add_done_callback(lambda _: self.expected.pop(transfer_id, None))
        return future


class LoneCluster:
    """A cluster of one controller."""

    store = "sqlite"

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.raised_by: list[Actor] = []
        self.certified: list[str] = []
        self.shut_down_for: list[str] = []

    def leader(self) -> LeaderView:
        return LeaderView(holder="c-1", epoch=self.epoch, http="127.0.0.1:1", grpc="127.0.0.1:2")

    def members(self) -> Sequence[MemberView]:
        return [MemberView(id="c-1", role="leader", http="127.0.0.1:1", grpc="127.0.0.1:2", version="0")]

    def bootstrap_addresses(self) -> Sequence[str]:
        return ["127.0.0.1:3"]

    async def raise_epoch(self, *, actor: Actor) -> Epoch:
        self.raised_by.append(actor)
        await asyncio.sleep(0)
        self.epoch = Epoch(self.epoch + 1000)
        return self.epoch

    def shut_down(self, reason: str) -> None:
        self.shut_down_for.append(reason)

    async def issue_certificate(self, *, name: str, csr_pem: str) -> IssuedCertificate:
        read_csr(csr_pem.encode())
        await asyncio.sleep(0)
        self.certified.append(name)
        number = len(self.certified)
        return IssuedCertificate(
            certificate_pem=f"certificate {number}",
            ca_pem="authority",
            serial=f"{number:x}",
            expires_at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
        )


class Rig:
    """A leading controller's HTTP side."""

    def __init__(self, *, store: FailingStore, data: pathlib.Path) -> None:
        self.store = store
        self.data = data
        self.clock = ShiftedClock()
        self.entropy = SystemEntropy()
        self.log = RecordedLog()
        self.state = ClusterState()
        self.sessions = Sessions()
        self.uploads = Uploads()
        self.leads = True
        self.commits: list[Commit] = []
        self.cluster: LoneCluster
        self.writer: Writer
        self.ledger: Ledger
        self.hub: EventHub
        self.leading: TermContext
        self.instances: InstanceService
        self.consoles: Consoles
        self.templates: TemplateLibrary
        self.distribution: StandInDistribution
        self.workload = Workloads(
            state=self.state,
            links=self.sessions,
            key=lambda: workload_key(self.state, data / "ca" / "cluster.key"),
            clock=self.clock,
            life=TOKEN_LIFE,
        )
        self.modules: Modules
        self.server: HttpServer
        self.setting: ProcessContext

    def gate(self) -> TermContext | None:
        return self.leading if self.leads else None

    def fold(self, commit: Commit) -> None:
        self.state.apply(commit)
        self.commits.append(commit)
        self.workload.follow(commit)
        self.instances.follow(commit)
        self.hub.publish(commit)

    @property
    def url(self) -> str:
        return f"http://{self.server.address}"

    @property
    def admin(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def client(self, token: str | None = None, **options: Any) -> httpx.AsyncClient:
        """A caller with that token, the administrator's unless given; "" for none."""
        text = self.admin if token is None else token
        headers = {"Authorization": f"Bearer {text}"} if text else {}
        # No TLS here; to read the authorities of the system takes longer than most tests.
        options = {"verify": False, **options}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=DEADLINE, **options)

    async def token(self, role: Role, **more: Any) -> tuple[str, str]:
        """A new token of that role: its id and its text."""
        async with self.client() as client:
            answer = await client.post("/api/v1/tokens", json={"name": "t", "role": role.value, **more})
            assert answer.status_code == 201, answer.text
            return answer.json()["id"], answer.json()["token"]

    async def node(self, name: str, **fields: Any) -> NodeRecord:
        """Store a node as enrolment would leave it."""
        now = self.clock.now()
        made = NodeRecord(
            id=NodeId(name),
            state=NodeState.ENROLLED,
            state_since=now,
            reason="enrolled",
            enrolled_at=now,
            serials=("1",),
        )
        record = msgspec.structs.replace(made, **fields)
        await self.ledger.commit(NODES.put(name, record, expect=ABSENT))
        return record

    async def online(self, name: str = "node-1", **fields: Any) -> StandInNode:
        """A node that is connected and takes instances; what it does is up to the test."""
        given = {"state": NodeState.ONLINE, "memory_mb": 4096, "cpus": 4, "runtimes": ("process",), **fields}
        await self.node(name, **given)
        self.sessions.connect(name)
        link = StandInNode(NodeId(name), consoles=self.consoles, uploads=self.uploads)
        link.instances = self.instances
        self.sessions.links[NodeId(name)] = link
        self.instances.dispatcher.inventory_complete(link.id, link.facts.id)
        return link

    async def group(self, name: str = "lobby", **fields: Any) -> dict[str, Any]:
        async with self.client() as client:
            answer = await client.post("/api/v1/groups", json={"name": name, "command": ["x"], **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def instance(self, group: str = "lobby", *, node: str = "node-1", **fields: Any) -> InstanceRecord:
        """An instance that runs, as the reports of its node would leave it."""
        if node not in self.sessions.links:
            await self.online(node)
        if self.state.groups.find(group) is None:
            await self.group(group)
        async with self.client() as client:
            answer = await client.post("/api/v1/instances", json={"group": group, "node": node})
        assert answer.status_code == 201, answer.text
        now = self.clock.now()
        running = {
            "state": InstanceState.RUNNING,
            "readiness": Readiness.READY,
            "pid": 4711,
            "started_at": now,
        }
        return await self.report(answer.json()["id"], **{**running, **fields})

    async def template(self, name: str = "base", files: Mapping[str, bytes] | None = None) -> dict[str, Any]:
        """Upload a template."""
        async with self.client() as client:
            body = tar_gz(files if files is not None else {"a.txt": b"a"})
            answer = await client.put(f"/api/v1/templates/{name}", content=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def install(self, archive: bytes, **query: str) -> dict[str, Any]:
        """Upload a module; what was answered."""
        async with self.client() as client:
            answer = await client.post(
                "/api/v1/modules", params=query, files={"file": ("m.zip", archive, "application/zip")}
            )
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def report(self, id: str, **fields: Any) -> InstanceRecord:
        """Something about an instance has changed; an event says so, as always."""
        stored = self.state.instances.require(id)
        record = msgspec.structs.replace(stored.record, **fields)
        event = Draft(type=EventType(f"INSTANCE_{record.state}"), subject=id, data={})
        await self.ledger.commit(INSTANCES.put(id, record, expect=stored.revision), event)
        return record

    async def happen(self, subject: str, **data: Any) -> Commit:
        """Something that makes one event and nothing else."""
        return await self.ledger.commit(Draft(type=EventType.NODE_ERROR_REPORTED, subject=subject, data=data))

    async def audits(self, action: str) -> list[dict[str, Any]]:
        async with self.client() as client:
            items = (await client.get("/api/v1/audit", params={"limit": 500})).json()["items"]
        named = [item for item in items if item["action"] == action]
        changed = {item["request"] for item in named if not item["outcome"]}
        return [item for item in named if not item["outcome"] or _tells(item, changed)]


def _tells(entry: dict[str, Any], changed: set[str]) -> bool:
    """Of an act with several entries, one: the change; of what comes once only each attempt, otherwise the success."""
    if entry["attempt"].startswith("once-"):
        return entry["outcome"] == "begun"
    return entry["outcome"] == "ok" and entry["request"] not in changed


@contextlib.asynccontextmanager
async def http_rig(
    data: pathlib.Path,
    *,
    ring_events: int = RING_EVENTS,
    ring_bytes: int = RING_BYTES,
    heartbeat_seconds: float = 15.0,
    body_limit: int = 1024 * 1024,
    templates: TemplatesSection = SMALL,
    modules: ModulesSection = MODULES,
    upload_idle_seconds: float = 30.0,
    scrape_networks: Sequence[str] = (),
    ping_seconds: float = 20.0,
    instances_are_root: bool = False,
    limits: HttpLimitsSection = NO_LIMITS,
    routes: Sequence[Route] = ROUTES,
    browsers: BrowserChecks | None = None,
    patience: float = 5.0,
    allow_insecure_login: bool = False,
    oidc: OidcSection | None = None,
    public_url: str = "http://localhost:8480",
) -> AsyncIterator[Rig]:
    """Everything started, in order, and stopped, in order."""
    async with contextlib.AsyncExitStack() as stack:
        store: Store = await open_store("sqlite", data=data)
        stack.push_async_callback(store.close)
        rig = Rig(store=FailingStore(store), data=data)
        await _lead(rig, stack, ring_events=ring_events, ring_bytes=ring_bytes, patience=patience)
        provider = None if oidc is None else _oidc(rig, oidc, public_url)
        rig.setting = ProcessContext(
            clock=rig.clock,
            entropy=rig.entropy,
            log_ring=rig.log.ring,
            set_log_level=rig.log.set_level,
            scrape_networks=[ipaddress.ip_network(network) for network in scrape_networks],
            heartbeat_seconds=heartbeat_seconds,
            body_limit=body_limit,
            limits=limits,
            browsers=browsers or BrowserChecks(),
            instances_are_root=instances_are_root,
            templates=templates,
            upload_idle_seconds=upload_idle_seconds,
            allow_insecure_login=allow_insecure_login,
            passwords=Passwords(entropy=rig.entropy, cost=CHEAP),
            oidc=provider,
            site=site_for(provider),
            cluster_key=lambda: ClusterKey.require(rig.data / "ca" / "cluster.key"),
        )
        stack.push_async_callback(rig.setting.passwords.close)
        rig.templates = TemplateLibrary(
            rig.store.blobs, config=templates, directory=data / "uploads", clock=rig.clock
        )
        rig.distribution = StandInDistribution(rig.state)
        rig.consoles = Consoles(
            state=rig.state,
            hub=rig.hub,
            links=rig.sessions,
            uploads=rig.uploads,
            clock=rig.clock,
            entropy=rig.entropy,
            refused=RefusedReports(metrics=CollectorRegistry(), clock=rig.clock),
            patience_seconds=PATIENCE,
        )
        rig.modules = _modules(rig, modules)
        rig.leading = TermContext(
            setting=rig.setting,
            state=rig.state,
            ledger=rig.ledger,
            reads=rig.store.reads,
            hub=rig.hub,
            writer=rig.writer,
            nodes=rig.sessions,
            cluster=rig.cluster,
            instances=rig.instances,
            consoles=rig.consoles,
            blobs=rig.store.blobs,
            templates=rig.templates,
            distribution=rig.distribution,
            workload=rig.workload,
            modules=rig.modules,
        )
        api = Api(setting=rig.setting, gate=rig.gate, routes=routes)
        watched = WatchedApi(api, api.routes)
        rig.server = HttpServer(
            watched, host="127.0.0.1", port=0, stop_seconds=1, ping_seconds=ping_seconds, limits=limits
        )
        rig.setting.metrics.watch_connections(rig.server.connections)
        await rig.server.start()
        stack.push_async_callback(rig.server.stop)
        stack.push_async_callback(rig.leading.close)
        stack.push_async_callback(rig.modules.close)
        await rig.modules.open()
        yield rig
        assert not watched.faults, f"refusals that refusals.toml does not have: {watched.faults}"


def _oidc(rig: Rig, section: OidcSection, public_url: str) -> OidcLogin:
    key = functools.partial(cookie_key, rig.data / "ca" / "cluster.key")
    return OidcLogin(section, public_url=public_url, key=key, clock=rig.clock, entropy=rig.entropy)


def _modules(rig: Rig, config: ModulesSection) -> Modules:
    parts = ModuleComponents(
        config=config,
        data=rig.data,
        store=rig.store,
        ledger=rig.ledger,
        hub=rig.hub,
        epoch=rig.cluster.epoch,
        holder="rig",
        verifier=open_verifier(config.signing),
        files=rig.distribution,
        registry=rig.setting.metrics.registry,
        clock=rig.clock,
        entropy=rig.entropy,
    )
    return Modules(parts, ledger=rig.ledger, budget=5.0)


async def _lead(
    rig: Rig, stack: contextlib.AsyncExitStack, *, ring_events: int, ring_bytes: int, patience: float
) -> None:
    term = await Leadership(rig.store.leases, clock=rig.clock, holder="rig", uncontested=True).acquire()
    rig.cluster = LoneCluster(term.epoch)
    rig.writer = Writer(
        rig.store.commits,
        epoch=term.epoch,
        clock=rig.clock,
        entropy=rig.entropy,
        on_commit=rig.fold,
        on_fenced=lambda fenced: None,
        on_fatal=lambda error: None,
        timing=WriterTiming(patience=patience, first_probe=0.01, slowest_probe=0.05),
    )
    snapshot = await rig.store.reads.snapshot(rig.state.collections)
    rig.state.load(snapshot)
    rig.hub = EventHub(
        log=rig.store.reads,
        clock=rig.clock,
        head=snapshot.head.cursor,
        ring_events=ring_events,
        ring_bytes=ring_bytes,
    )
    rig.ledger = Ledger(rig.writer, rig.state)
    rig.instances = InstanceService(
        ledger=rig.ledger,
        sessions=rig.sessions,
        epoch=term.epoch,
        clock=rig.clock,
        entropy=rig.entropy,
        tokens=rig.workload.tokens,
        ticket_keys=lambda: ticket_keys(rig.state, rig.data / "ca" / "cluster.key"),
        placement=PlacementSection(),
        players=rig.workload.vitals.players_of,
    )
    await stack.enter_async_context(rig.writer)
    await found_cluster(
        ledger=rig.ledger,
        data=rig.data,
        key_path=rig.data / "ca" / "cluster.key",
        clock=rig.clock,
        entropy=rig.entropy,
    )
    await rig.instances.numbers.refill()
