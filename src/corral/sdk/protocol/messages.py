"""The body of every method that host and module call on each other. `corral.sdk.protocol.frames` carries
them.

Structs are encoded as maps, and both sides ignore unknown fields: a host may be newer than the SDK that a
module was built with.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

# --- host -> module -----------------------------------------------------------------------------
CONSTRUCT: Final = "construct"
HOOK_PREFIX: Final = "hook."
"""`hook.on_load`, `hook.on_start`, …: body `HookArguments`, answer `HookAnswer`."""
REGISTRATIONS: Final = "registrations"
DELIVER: Final = "deliver"
RUN_TASK: Final = "task"
ROUTE: Final = "route"
CAPABILITY: Final = "capability"
COMMAND: Final = "command"
HEALTH: Final = "health"
FINISH: Final = "finish"
CAPABILITY_STATES: Final = "capability_states"
"""A notice."""

# --- module -> host -----------------------------------------------------------------------------
SUBSCRIBE: Final = "events.subscribe"
UNSUBSCRIBE: Final = "events.unsubscribe"
PUBLISH: Final = "events.publish"
SCHEDULE: Final = "scheduler.add"
CANCEL_TASK: Final = "scheduler.cancel"
CALL_CAPABILITY: Final = "capabilities.call"
METRIC: Final = "metrics.record"
"""A notice."""
FORGOTTEN: Final = "forgotten"
"""The kind of a sample that removes its series."""
LOG: Final = "log"
"""A notice."""
READ_FILE: Final = "files.read"
WRITE_FILE: Final = "files.write"
WALK_FILES: Final = "files.walk"
REMOVE_FILE: Final = "files.remove"
SPAWN: Final = "processes.spawn"
LIST_PROCESSES: Final = "processes.list"
STOP_PROCESS: Final = "processes.stop"
DOCUMENTS_PREFIX: Final = "documents."
KEY_VALUE_PREFIX: Final = "kv."


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all bodies."""


class Nothing(Body, frozen=True, kw_only=True):
    """An answer without content: done."""


class Construct(Body, frozen=True, kw_only=True):
    """Import and construct; the first call to a new process. Answered by `Constructed`."""

    module_id: str
    version: str
    host: str
    """`controller` or `daemon`."""
    entrypoint: str
    artifact_path: str
    """The unpacked archive, read-only."""
    manifest: msgspec.Raw
    """The manifest as a msgpack map, camelCase as written."""
    config: dict[str, Any] = {}
    previous_version: str = ""
    is_upgrade: bool = False
    storages: tuple[str, ...] = ()
    """`documents`, `key_value`: those this module may use here."""
    capabilities: tuple[CapabilityState, ...] = ()
    node_id: str = ""


class Constructed(Body, frozen=True, kw_only=True):
    hooks: tuple[str, ...]
    """Names of the hooks that the class defines."""
    sdk: str
    """Version of the SDK in the process."""


class HookArguments(Body, frozen=True, kw_only=True):
    """`values` by parameter name; empty for the lifecycle hooks, which get only the context."""

    values: dict[str, Any] = {}


class HookAnswer(Body, frozen=True, kw_only=True):
    value: Any = None


class Parameter(Body, frozen=True, kw_only=True):
    """A parameter of a command, for its help."""

    name: str
    required: bool = True
    help: str = ""


class RouteDeclaration(Body, frozen=True, kw_only=True):
    number: int
    method: str
    path: str
    """Below `/api/v1/modules/ID`, with `{name}` for one segment, `{name:path}` for the rest."""
    permission: str
    summary: str = ""
    deadline_ms: int = 10_000
    max_body: int = 1_048_576
    streams: bool = False
    """Its answers may come in chunks."""
    request_schema: dict[str, Any] | None = None
    response_schema: dict[str, Any] | None = None


class MethodDeclaration(Body, frozen=True, kw_only=True):
    name: str
    parameters: tuple[str, ...] = ()


class BindingDeclaration(Body, frozen=True, kw_only=True):
    """A capability that the module provides now."""

    id: str
    methods: tuple[MethodDeclaration, ...]


class CommandDeclaration(Body, frozen=True, kw_only=True):
    number: int
    name: str
    help: str = ""
    parameters: tuple[Parameter, ...] = ()
    permission: str = "modules.use"


class Registrations(Body, frozen=True, kw_only=True):
    """Result of `register_routes`, `capability_handles` and `register_commands`."""

    routes: tuple[RouteDeclaration, ...] = ()
    bindings: tuple[BindingDeclaration, ...] = ()
    commands: tuple[CommandDeclaration, ...] = ()


class EventBody(Body, frozen=True, kw_only=True):
    """An event as modules receive it. `cursor` orders all of them; a module's own events have the type
    `ID/NAME`."""

    type: str
    subject: str
    at: dt.datetime
    cursor: str
    data: dict[str, Any] = {}
    node: str = ""
    """Node on which a module's own event was published; empty: the controller."""


class Delivery(Body, frozen=True, kw_only=True):
    """Events of one subscription in order. The answer confirms all of them."""

    subscription: int
    events: tuple[EventBody, ...]


class TaskRun(Body, frozen=True, kw_only=True):
    task: int


class CallerBody(Body, frozen=True, kw_only=True):
    name: str
    role: str
    address: str = ""


class RouteRequest(Body, frozen=True, kw_only=True):
    route: int
    method: str
    path: str
    parameters: dict[str, str] = {}
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    caller: CallerBody


class RouteAnswer(Body, frozen=True, kw_only=True):
    """With `streamed` the body follows in chunks under the call's number."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    streamed: bool = False


class CapabilityRequest(Body, frozen=True, kw_only=True):
    """To the provider, and from the consumer to the host: the host routes it by `capability`."""

    capability: str
    method: str
    arguments: msgspec.Raw
    """A msgpack map of arguments by parameter name."""
    deadline_ms: int = 0
    """Deadline of the consumer; 0: the host's default."""


class CapabilityAnswer(Body, frozen=True, kw_only=True):
    value: msgspec.Raw


class CapabilityState(Body, frozen=True, kw_only=True):
    """State of a capability that the module requires. Not `available`: its handle is cleared."""

    id: str
    available: bool
    version: str = ""
    provider: str = ""
    deprecated: bool = False


class CapabilityStates(Body, frozen=True, kw_only=True):
    states: tuple[CapabilityState, ...]


class CommandRequest(Body, frozen=True, kw_only=True):
    command: int
    arguments: tuple[str, ...] = ()
    caller: CallerBody


class CommandAnswer(Body, frozen=True, kw_only=True):
    lines: tuple[str, ...] = ()


class HealthAnswer(Body, frozen=True, kw_only=True):
    healthy: bool = True
    detail: str = ""


class Lingering(Body, frozen=True, kw_only=True):
    """The answer to `finish`: work that would keep the process from ending by itself."""

    threads: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


class Subscribe(Body, frozen=True, kw_only=True):
    subscription: int
    types: tuple[str, ...] = ()
    """Empty: every type."""
    subjects: tuple[str, ...] = ()
    """Exact subjects; empty: any."""
    durable: str = ""
    """Name under which the position is stored; empty: from now on, not stored."""


class Unsubscribe(Body, frozen=True, kw_only=True):
    subscription: int


class Publish(Body, frozen=True, kw_only=True):
    type: str
    subject: str = ""
    data: dict[str, Any] = {}


class Published(Body, frozen=True, kw_only=True):
    cursor: str


class Schedule(Body, frozen=True, kw_only=True):
    """Exactly one of `delay_ms` (once), `every_ms` (fixed rate, `initial_delay_ms` first) and `cron`."""

    task: int
    name: str = ""
    delay_ms: int | None = None
    every_ms: int | None = None
    initial_delay_ms: int = 0
    cron: str = ""
    """Five fields, UTC."""
    deadline_ms: int = 30_000


class CancelTask(Body, frozen=True, kw_only=True):
    task: int


class MetricSample(Body, frozen=True, kw_only=True):
    """`kind`: `counter` (value is added), `gauge` (value is set), `histogram` (value is observed), or
    `forgotten` (the series is removed; the value is ignored)."""

    name: str
    kind: str
    value: float
    labels: dict[str, str] = {}
    help: str = ""


class MetricSamples(Body, frozen=True, kw_only=True):
    samples: tuple[MetricSample, ...]


class LogLine(Body, frozen=True, kw_only=True):
    level: str
    message: str
    fields: dict[str, str] = {}
    traceback: str = ""
