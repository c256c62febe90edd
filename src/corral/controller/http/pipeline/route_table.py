"""Route table: the kinds of routes. Every route names its permission; without one it cannot be constructed.

The kind of a route determines what it may do:

- a `Probe` answers in any role, a `Read` only reads;
- a `Page` is for the eyes of people, in any role, and no part of the API that is described;
- a `Mutate` describes a change that the framework commits, a `Build` stores contents first and then
  describes the change that names them, an `Upload` does so with a body that is streamed to it;
- an `Act` has an effect outside the store, a `FormUpload` does so with a form that is streamed to it; `Once` has one
  that must not come twice. All are audited before the effect, and their outcome after it;
- a `Stream` does not end by itself, a `Download` is as long as it is, a `Socket` is a WebSocket, an
  `Asset` is a whole file that browsers keep;
- a `Relay` hands a request on to a module, which declares what it takes and what permission that needs;
- a `LoginRoute` is for those who are not known yet: it gives them a session, and audits that itself;
- a `Report` comes from a workload, by the token of its run, and is neither stored nor audited;
- a `ProxyRead` is a read that instances of proxies may make, too.
"""

from __future__ import annotations

import enum
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from corral.controller.http.messages.call import ApiCall, NoQuery, Query, TicketedQuery
from corral.controller.http.pipeline.route_handlers import (
    ActDetails,
    ActHandler,
    ActSubject,
    AssetHandler,
    BuildHandler,
    DownloadHandler,
    Effect,
    IntakeHandler,
    LoginHandler,
    MutateHandler,
    OnceHandler,
    PageHandler,
    ProbeHandler,
    ReadHandler,
    Recall,
    ReportHandler,
    Settle,
    SocketHandler,
    StreamHandler,
    Turn,
    UploadHandler,
    UploadLimit,
)
from corral.controller.http.pipeline.scoping import Scoping, scoping_of
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.json_limits import MOST_VALUES
from corral.domain.permissions import Permission


class Public(enum.Enum):
    """In place of a permission: every caller may, without a token."""

    PUBLIC = "PUBLIC"


PUBLIC: Final = Public.PUBLIC


class Itself(enum.Enum):
    """In place of a permission: a workload may, and for itself alone."""

    WORKLOAD = "WORKLOAD"


WORKLOAD: Final = Itself.WORKLOAD

_PARAMETER: Final = re.compile(r"\{([a-z_]+)\}")
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


def path_id(call: ApiCall[Any, Any]) -> str:
    """The subject of an act: the id in its path."""
    return call.path["id"]


class Resource(Protocol):
    """Finds the stored resource of a path; NOT_FOUND when there is none."""

    def __call__(self, state: ClusterState, path: Mapping[str, str], /) -> StoredRecord[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Route:
    """Fields of all kinds of routes."""

    method: str
    path: str
    permission: Permission | Public | Itself
    summary: str
    description: str = ""
    """What the summary and the schemas do not say, in Markdown."""
    messages: Mapping[str, Any] = field(default_factory=dict)
    """The types of the messages that a stream or a socket sends, by their names."""
    response: Any = None
    """The type of the answer's body; None for an answer without one."""
    compact: Any = None
    """The type of the answer to a list with `view=summary`, which is encoded already; None: there is no such parameter."""
    status: int = 200
    query: type[Query] = NoQuery
    body: Any = None
    """The type of the request's body: a `Body`, or a bounded mapping; None for a request without one."""
    body_limit: int | None = None
    """The most bytes of its body; None: as many as of any. A `Build` may take more: a few such requests at once."""
    most_values: int = MOST_VALUES
    """The most entries of all lists and objects of its body together."""
    cost: int = 1
    """As how many requests of its token it counts: more for what takes the leader long."""
    items_a_request: int = 0
    """Every so many items of the page that is asked for count as one request more; 0: none does."""
    scope: Scoping | None = None
    """How it regards the scope of its caller; None: as its path says, see `scoping_of`."""
    rest: bool = False
    """The last parameter takes the rest of the path, slashes included."""
    lowered: frozenset[str] = frozenset()
    """Parameters of the path that are read in small letters: names of Universe's may have capitals, ours have none."""
    browser: bool = False
    """Answered to browsers before their caller is known, as login and the pages of the dashboard are: only under a
    `Host` that is allowed."""

    mutates: ClassVar[bool] = False
    ticketed: ClassVar[bool] = False
    """A ticket in the query stands in for a token or a session: browsers cannot set headers on streams and downloads."""

    def __post_init__(self) -> None:
        if not isinstance(self.permission, Permission | Public | Itself):
            raise ValueError(f"{self.name} names no permission")
        if (self.permission is WORKLOAD) != isinstance(self, Report):
            raise ValueError(f"{self.name} mixes up callers and workloads")
        if self.method not in _METHODS or not self.path.startswith("/") or not self.summary:
            raise ValueError(f"{self.name} is not a well-formed route")
        if self.ticketed and not issubclass(self.query, TicketedQuery):
            raise ValueError(f"{self.name} takes no ticket")
        if self.mutates and (self.method == "GET" or self.permission is PUBLIC):
            raise ValueError(f"{self.name} changes something: it needs a caller and another method")

    @property
    def scoping(self) -> Scoping:
        return self.scope or scoping_of(self.path)

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> list[str]:
        """The names in braces of the path."""
        return _PARAMETER.findall(self.path)

    @property
    def pattern(self) -> str:
        """The path as the router reads it."""
        return f"{self.path[:-1]}:path}}" if self.rest else self.path


@dataclass(frozen=True, kw_only=True)
class Probe(Route):
    """Answers in every role, from the state of the process."""

    handler: ProbeHandler
    open_to_scrapers: bool = False
    """Callers from the configured scrape networks need no token."""
    content_type: str = "application/json"


@dataclass(frozen=True, kw_only=True)
class Page(Route):
    """A page or a file of the dashboard, in every role and for everybody: it shows nothing of the cluster by itself. Its
    query is left to the page; a caller that has the file gets a 304."""

    handler: PageHandler
    permission: Permission | Public | Itself = PUBLIC
    browser: bool = True


@dataclass(frozen=True, kw_only=True)
class Read(Route):
    """Answers from the state and changes nothing that is stored, whatever its method."""

    handler: ReadHandler


@dataclass(frozen=True, kw_only=True)
class ProxyRead(Route):
    """Answers from the state: callers with the permission, and instances of groups whose category is `proxy`, by the
    token of their run. These see all of it."""

    handler: ReadHandler


@dataclass(frozen=True, kw_only=True)
class CommitRoute(Route):
    """Fields of all kinds that commit a description."""

    revises: Resource | None = None
    """The resource whose revision `If-Match` requires; None for a creation."""
    creates: bool = False
    """The resource need not exist, unless `If-Match` requires it; 201 when it did not."""
    effect: Effect | None = None
    """An action right after the commit; idempotent, and lost if the process dies in between."""
    settle: Settle | None = None
    """A wait after the commit that a caller may ask for: takes the answer's body, gives the one to send."""
    dry_run: Any = None
    """The type of the answer to a request with `dry_run`; None: there is no such parameter."""
    turn: Turn | None = None
    """Lock from the description to the commit, where concurrent changes would only conflict."""

    mutates: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Mutate(CommitRoute):
    """Changes the state by a pure description; the handler may be called several times."""

    handler: MutateHandler


@dataclass(frozen=True, kw_only=True)
class Build(CommitRoute):
    """Stores contents that nothing names yet, then describes the change that names them. Contents
    whose change was never committed are collected by themselves."""

    handler: BuildHandler


@dataclass(frozen=True, kw_only=True)
class Upload(CommitRoute):
    """A `Build` of the request's body, which may have up to `limit` bytes and is never held whole.

    The caller is checked before the first byte is read. An idempotency key covers these bytes: a
    repetition has to send them again."""

    handler: UploadHandler
    limit: UploadLimit
    media: tuple[str, ...] = ("application/octet-stream",)
    """The media types of the API's description; bytes are checked by their content."""


@dataclass(frozen=True, kw_only=True)
class Act(Route):
    """Does something outside the transaction, then records it. Repeating it must be harmless. The audit has an
    entry from before, and one with the outcome; a handler may write others, with the changes that it commits."""

    handler: ActHandler
    action: str
    """Its name in the audit, and what it is done to."""
    subject: ActSubject
    details: ActDetails | None = None
    """What the audit has of it beside, from before the act."""
    by_itself: ReportHandler | None = None
    """Instead, for the instance of the path by the token of its run: as a `Report`."""
    ends_term: bool = False
    """The act ends this term of leading and its outcome in the audit opens the next one: there is no ledger
    left to record it in, and an idempotency key is remembered by this process alone."""

    mutates: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Once(Route):
    """Does something outside the store that must not come twice. The handler begins the attempt, which writes
    the audit entry, then acts; what it describes is recorded with the answer."""

    handler: OnceHandler

    mutates: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class FormUpload(Route):
    """An `Act` on a form: one file of any size, which lies on disk when the handler is called, and some
    small parts. The caller is checked before the first byte is read. An idempotency key covers what
    was sent: a repetition has to send it again."""

    handler: IntakeHandler
    action: str
    subject: ActSubject
    details: ActDetails | None = None
    limit: UploadLimit
    directory: Callable[..., pathlib.Path]
    """Where the file lies meanwhile."""
    small: Mapping[str, int]
    """The parts beside the file, and how large each may be."""
    recall: Recall | None = None
    """Finds a form that was received before, by a JSON `body` in place of a form; None: a form has to be sent."""
    bare: bool = False
    """The body is the file itself and may be empty; `If-Match` and `If-None-Match` are the handler's."""
    check: Effect | None = None
    """Refuses what can be refused before the body is read."""
    once: bool = False
    """It must not come twice: the handler begins the attempt, as that of a `Once` does, and writes the audit entry."""

    mutates: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Asset(Route):
    """A whole file; its entity tag is a hash of its content, and a caller that has it gets a 304."""

    handler: AssetHandler


@dataclass(frozen=True, kw_only=True)
class Relay(Route):
    """Every request of a method below a module's path. `permission` is the least a caller needs; the module's
    declaration has what else. A request that may change something is audited before the module receives it."""


@dataclass(frozen=True, kw_only=True)
class Stream(Route):
    """A stream of server-sent events."""

    handler: StreamHandler
    query: type[Query] = TicketedQuery
    frames: str = ""
    """The schema of the data of its frames in the OpenAPI document; empty: it has none."""
    schemas: tuple[type, ...] = ()
    """Structs in its frames."""
    ticketed: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Download(Route):
    """Bytes of any length, sent as they are found."""

    handler: DownloadHandler
    query: type[Query] = TicketedQuery
    ticketed: ClassVar[bool] = True
    media: str = "application/octet-stream"
    """The media type of the API's description."""
    counts: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer that are numbers, and what they count."""


@dataclass(frozen=True, kw_only=True)
class Socket(Route):
    """A WebSocket: server and client send JSON texts. A ticket may come as a subprotocol, in a header."""

    handler: SocketHandler
    query: type[Query] = TicketedQuery
    ticketed: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class LoginRoute(Route):
    """A step of a login. Its logins are counted by address; those over connections that others can read are refused."""

    handler: LoginHandler
    shows_secret: bool = True
    """Whether it takes passwords or codes, of which an address may try few; else many people may share an address."""
    permission: Permission | Public | Itself = PUBLIC
    browser: bool = True


@dataclass(frozen=True, kw_only=True)
class Report(Route):
    """Report of a workload about itself."""

    handler: ReportHandler
    late: bool = False
    """Also with a token that has expired, as long as its run lives."""


def check_table(routes: Sequence[Route]) -> None:
    """Refuse a table in which two routes claim the same requests."""
    seen: set[tuple[str, str]] = set()
    for route in routes:
        key = (route.method, _PARAMETER.sub("{}", route.path))
        if key in seen:
            raise ValueError(f"{route.name} is in the table twice")
        seen.add(key)
