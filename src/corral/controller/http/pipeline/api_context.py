"""Context of the handlers: `ProcessContext` for the life of the process, `TermContext` for one term of leadership.

The protocols between them are what the API needs of the cluster, of instances and of file distribution.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from corral.controller.accounts.delegations import Delegations
from corral.controller.accounts.logins import Logins
from corral.controller.accounts.password_logins import KeySource
from corral.controller.accounts.passwords import Passwords
from corral.controller.accounts.principals import ACCOUNT_EVENTS, Principals
from corral.controller.accounts.user_sessions import PREFIX as SESSION_PREFIX
from corral.controller.accounts.user_sessions import UserSessions
from corral.controller.commands.command_process import CommandRunner
from corral.controller.consoles.service import Consoles
from corral.controller.dashboard.site_files import Site, open_site
from corral.controller.events.hub import EventHub
from corral.controller.http.messages.compression import Compression
from corral.controller.http.messages.request import BodyPace
from corral.controller.http.pipeline.attempts import Attempts
from corral.controller.http.pipeline.audit_reads import AuditReads, WriterHealth
from corral.controller.http.pipeline.browser_checks import BrowserChecks
from corral.controller.http.pipeline.caller_limits import OpenStreams, RequestRates
from corral.controller.http.pipeline.log_sources import RecentLogs
from corral.controller.http.pipeline.sse_stream import HEARTBEAT_SECONDS
from corral.controller.http.pipeline.summary_cache import SummaryCache
from corral.controller.http.pipeline.term_ports import ClusterControl, FileDistribution, InstanceControl
from corral.controller.http.pipeline.tickets import Tickets
from corral.controller.http.server.metrics import HttpMetrics
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState, Mirror
from corral.controller.state.ledger import Ledger
from corral.controller.templates.library import TemplateLibrary
from corral.controller.workload.service import Workloads
from corral.domain.ids import CallerId
from corral.domain.records import ApiTokenRecord
from corral.errors import Bug, Code, Retryable
from corral.pki.keys import ClusterKey
from corral.store.port import BlobEngine, ReadEngine
from corral.system.addresses import Network
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.controller_config import TemplatesSection
from corral.system.entropy import Entropy, SystemEntropy
from corral.system.http_config import HttpLimitsSection
from corral.version import VERSION

if TYPE_CHECKING:
    from corral.controller.accounts.oidc.login import OidcLogin

BODY_LIMIT: Final = 1024 * 1024
_LARGE_BODIES: Final = 4
_LARGE_BODIES_OF_TOKEN: Final = 2
_COMMANDS: Final = 4
_COMMANDS_OF_TOKEN: Final = 2
"""Commands of the command line that run at once: each is a process of its own."""
_SEARCHES: Final = 8
_SEARCHES_OF_TOKEN: Final = 2
"""Searches of consoles: nodes read up to 64 MiB for each."""


def _no_cluster_key() -> ClusterKey:
    raise Bug("this process was given no cluster key")


@dataclass(frozen=True, kw_only=True)
class ProcessContext:
    """Dependencies and limits that are the same in every role and term."""

    clock: Clock
    entropy: Entropy
    log_ring: RecentLogs
    set_log_level: Callable[[str], None]
    """Switches this process's own log; the empty string goes back to the configuration."""
    metrics: HttpMetrics = field(default_factory=HttpMetrics)
    scrape_networks: Sequence[Network] = ()
    body_limit: int = BODY_LIMIT
    limits: HttpLimitsSection = field(default_factory=HttpLimitsSection)
    browsers: BrowserChecks = field(default_factory=BrowserChecks)
    """The hosts and origins that requests of browsers may name."""
    upload_idle_seconds: float = 30.0
    """Longest pause of an upload that has been fast so far."""
    templates: TemplatesSection = field(default_factory=TemplatesSection)
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    allow_insecure_login: bool = False
    passwords: Passwords = field(default_factory=lambda: Passwords(entropy=SystemEntropy()))
    """Whoever makes another one closes it."""
    oidc: OidcLogin | None = None
    """Logins with a provider of OpenID Connect, if one is configured."""
    site: Site = field(default_factory=open_site)
    """The files of the dashboard."""
    compression: Compression = field(default_factory=Compression)
    cluster_key: KeySource = _no_cluster_key
    """Opens the second factors of users."""
    instances_are_root: bool = False
    """Instances on this host run as root: a caller who may start one can read all data of the controller."""
    commands: CommandRunner | None = None
    """Runs commands of the command line for callers; None: this process has no program for it."""
    scheme: str = "http"
    """Of the API, here and on the other controllers."""
    leader: Callable[[], str] = lambda: ""
    """The address of the leader's API, as far as it is known here."""
    version: str = VERSION
    holder: str = ""
    """The name of this controller, under which it holds the lease when it leads."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """In effect, without secrets."""
    began: float = 0.0
    """By the monotonic clock."""

    @property
    def build(self) -> str:
        """Differs between two programs that serve different pages, also under one version."""
        names = ",".join(sorted(self.site.assets))
        return hashlib.sha256(f"{self.version},{names}".encode()).hexdigest()[:12]

    def not_leading(self) -> Retryable:
        """The NOT_LEADER error, with the address of the leader where it is known."""
        leader = self.leader()
        return Retryable(
            Code.NOT_LEADER,
            "this controller does not lead at present",
            hint=f"ask the leader: {self.scheme}://{leader}"
            if leader
            else "ask the leader, or try again shortly",
            retry_after=1.0,
        )

    def upload_pace(self) -> BodyPace:
        return BodyPace(pause_seconds=self.limits.body_pause_seconds, idle_seconds=self.upload_idle_seconds)


_REVOKED_KEPT: Final = 100


class TokenUses:
    """Time of the last use of each token in this term; revoked tokens are removed."""

    def __init__(self, tokens: Mirror[ApiTokenRecord]) -> None:
        self._tokens = tokens
        self._last: dict[CallerId, dt.datetime] = {}

    def note(self, token: CallerId, now: dt.datetime) -> None:
        self._last[token] = now
        if len(self._last) > 2 * len(self._tokens) + _REVOKED_KEPT:
            self._last = {id: at for id, at in self._last.items() if self._tokens.find(id) is not None}

    def last(self, token: str) -> dt.datetime | None:
        return self._last.get(CallerId(token))


@dataclass(kw_only=True, eq=False)
class TermContext:
    """Services of one term that handlers work with; `close` ends the term's streams. A handler declares in its
    parameters which of them it uses; see `handler_parameters`."""

    setting: ProcessContext
    state: ClusterState
    ledger: Ledger
    reads: ReadEngine
    hub: EventHub
    writer: WriterHealth
    nodes: LiveNodes
    cluster: ClusterControl
    instances: InstanceControl
    consoles: Consoles
    blobs: BlobEngine
    templates: TemplateLibrary
    distribution: FileDistribution
    workload: Workloads
    modules: Modules
    group_folder: GroupFolder | None = None
    """The directory of group documents, if the controller has one."""
    edits: KeyedLocks[str] = field(default_factory=KeyedLocks, init=False)
    """Edits of one template are serialised: each starts from the files of the one before."""
    summaries: SummaryCache = field(default_factory=SummaryCache, init=False)
    """Of instances."""
    attempts: Attempts = field(init=False)
    audit_reads: AuditReads = field(init=False)
    tickets: Tickets = field(init=False)
    streams: OpenStreams = field(init=False)
    uploads: OpenStreams = field(init=False)
    large_bodies: OpenStreams = field(init=False)
    """Requests with bodies of more than `body_limit`, which are held in memory."""
    running_commands: OpenStreams = field(init=False)
    console_searches: OpenStreams = field(init=False)
    delegations: Delegations = field(init=False)
    rates: RequestRates = field(init=False)
    token_uses: TokenUses = field(init=False)
    user_sessions: UserSessions = field(init=False)
    principals: Principals = field(init=False)
    logins: Logins = field(init=False)

    def __post_init__(self) -> None:
        setting, limits = self.setting, self.setting.limits
        self.user_sessions = UserSessions(self.state)
        self.principals = Principals(self.state, self.user_sessions)
        self.logins = Logins(
            ledger=self.ledger,
            sessions=self.user_sessions,
            passwords=setting.passwords,
            key=setting.cluster_key,
            clock=setting.clock,
            entropy=setting.entropy,
        )
        self.attempts = Attempts(state=self.state, ledger=self.ledger, entropy=setting.entropy)
        self.audit_reads = AuditReads(ledger=self.ledger, writer=self.writer, clock=setting.clock)
        self.tickets = Tickets(clock=setting.clock, entropy=setting.entropy, per_caller=limits.tickets)
        self.streams = self._pool("streams", limit=limits.all_streams, per_caller=limits.streams)
        self.uploads = self._pool("uploads", limit=limits.all_uploads, per_caller=limits.uploads)
        self.large_bodies = self._pool(
            "large requests", limit=_LARGE_BODIES, per_caller=min(limits.uploads, _LARGE_BODIES_OF_TOKEN)
        )
        self.running_commands = self._pool("commands", limit=_COMMANDS, per_caller=_COMMANDS_OF_TOKEN)
        self.console_searches = self._pool(
            "searches of consoles", limit=_SEARCHES, per_caller=_SEARCHES_OF_TOKEN
        )
        self.delegations = Delegations(setting.entropy)
        self.rates = RequestRates(limits, clock=setting.clock)
        self.token_uses = TokenUses(self.state.tokens)

    def note_use(self, caller: CallerId, now: dt.datetime) -> None:
        """A request, or an open stream, of a token or a session."""
        if caller.startswith(SESSION_PREFIX):
            self.user_sessions.note_use(caller, now)
        else:
            self.token_uses.note(caller, now)

    def _pool(self, what: str, *, limit: int, per_caller: int) -> OpenStreams:
        pool = OpenStreams(
            what=what,
            clock=self.setting.clock,
            principals=self.principals,
            note_use=self.note_use,
            limit=limit,
            per_caller=per_caller,
        )
        self.hub.subscribe(
            name=f"http-{what}",
            types=ACCOUNT_EVENTS,
            on_event=pool.on_account_changed,
            on_resync=pool.on_resync,
        )
        return pool

    async def close(self) -> None:
        """End every stream and the hub; later calls are refused with NOT_LEADER. Idempotent."""
        for pool in (
            self.streams,
            self.uploads,
            self.large_bodies,
            self.running_commands,
            self.console_searches,
        ):
            pool.close_all("this controller no longer leads")
        self.consoles.close()
        self.logins.devices.close()
        await self.hub.close()


CurrentTerm = Callable[[], TermContext | None]
"""Returns the context of the present term, or None while this controller does not lead."""
