"""Scope of a loaded module: all that a host holds on its behalf. Closing the scope removes it, whether the
module cooperates or not.

A scope lives as long as the module's process. What the module registers in `on_load` stays for that time;
what it registers from `on_start` on belongs to the start, and is removed when the module is stopped. Events
and tasks reach the module only while it is ACTIVE ("serves").
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import structlog

from corral.domain.modules.manifest import DEFAULT_HOOK_DEADLINE_MS, Manifest, ModuleHost
from corral.errors import Code, CorralError, Rejected
from corral.modules.process.call_failures import CallOverrun, ModuleRaised
from corral.modules.process.circuit_breaker import Breaker, CallCounts
from corral.modules.process.process_port import RunningModule
from corral.sdk.protocol.messages import HEALTH, HealthAnswer, Nothing
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.logger import LogQuota

T = TypeVar("T")

Undo = Callable[[], Awaitable[None] | None]

HEALTH_CHECK: Final = "health_check"
LOG_TAIL: Final = 20
"""Log lines that are kept for the report of a failure."""
UNDO_SECONDS: Final = 5.0

_log = structlog.get_logger("corral.modules")


class Owned:
    """One registration of a module. `release` forgets it without undoing it: it ended by itself."""

    def __init__(self, scope: Scope, kind: str, name: str, undo: Undo) -> None:
        self.kind = kind
        self.name = name
        self.undo = undo
        self._scope = scope

    def release(self) -> None:
        self._scope._forget(self)


class Scope:
    """The host's side of one loaded module. Not thread-safe: for the loop's thread only."""

    def __init__(
        self,
        *,
        module_id: str,
        version: str,
        manifest: Manifest,
        host: ModuleHost,
        generation: int,
        config: dict[str, Any],
        clock: Clock,
        breaker: Breaker,
        counts: CallCounts,
    ) -> None:
        self.module_id = module_id
        self.version = version
        self.manifest = manifest
        self.host = host
        self.generation = generation
        """The generation of the module's collections that it works on."""
        self.config = config
        self.breaker = breaker
        self.counts = counts
        self.log_tail: collections.deque[str] = collections.deque(maxlen=LOG_TAIL)
        self.hooks: frozenset[str] = frozenset()
        """The hooks that its class defines; known once it is constructed."""
        self._clock = clock
        self._process: RunningModule | None = None
        self._loaded: list[Owned] = []
        self._started: list[Owned] | None = None
        self._serving = asyncio.Event()
        self._tasks = Tasks()
        self._watching: asyncio.Task[None] | None = None
        self.quota = LogQuota(clock=clock)
        """Limits the host's own log records about this module: one of each kind per second."""
        self.closed = False

    @property
    def process(self) -> RunningModule:
        if self._process is None:
            raise Rejected(Code.MODULE_NOT_ACTIVE, f"module '{self.module_id}' has no process")
        return self._process

    @property
    def attached(self) -> bool:
        return self._process is not None

    def attach(self, process: RunningModule) -> None:
        """Set the process, once, as soon as it exists: it may make calls before it receives any."""
        self._process = process

    @property
    def name(self) -> str:
        """Name of the module as a caller."""
        return self.module_id

    @property
    def hook_deadline(self) -> float:
        """Seconds a hook of the module may take."""
        backend = self.manifest.backend_on(self.host)
        return (backend.hook_deadline_ms if backend else DEFAULT_HOOK_DEADLINE_MS) / 1000

    # --- registrations --------------------------------------------------------------------------
    def own(self, kind: str, name: str, undo: Undo) -> Owned:
        """Add a registration; `undo` removes it and is called at most once. Rejected once the scope is
        closed: then the caller has to remove it."""
        if self.closed:
            raise Rejected(Code.NOT_RUNNING, f"module '{self.module_id}' is not running any more")
        owned = Owned(self, kind, name, undo)
        (self._loaded if self._started is None else self._started).append(owned)
        return owned

    def registrations(self) -> list[tuple[str, str]]:
        """Kind and name of all registrations, in the order they were made."""
        return [(owned.kind, owned.name) for owned in [*self._loaded, *(self._started or ())]]

    def begin_start(self) -> None:
        """Registrations from here on belong to the start."""
        if self._started is None:
            self._started = []

    async def end_start(self) -> None:
        """Undo the registrations made since `begin_start`, the last first; the others stay, inactive."""
        self.rest()
        while self._started:
            await self._undo(self._started.pop())
        self._started = None

    async def close(self) -> None:
        """Undo everything, the last first. An undo that fails or hangs does not affect the others."""
        self.closed = True
        await self._tasks.close()
        await self.end_start()
        while self._loaded:
            await self._undo(self._loaded.pop())

    async def _undo(self, owned: Owned) -> None:
        try:
            async with asyncio.timeout(UNDO_SECONDS):
                pending = owned.undo()
                if inspect.isawaitable(pending):
                    await pending
        except Exception as error:
            _log.error(
                "scope_undo.failed",
                module=self.module_id,
                kind=owned.kind,
                name=owned.name,
                error=repr(error),
            )

    def _forget(self, owned: Owned) -> None:
        for held in (self._loaded, self._started or []):
            if owned in held:
                held.remove(owned)

    # --- serving --------------------------------------------------------------------------------
    @property
    def serving(self) -> bool:
        return self._serving.is_set()

    async def until_serving(self) -> None:
        """Wait until the module is ACTIVE, before something is delivered to it."""
        await self._serving.wait()

    def serve(self, *, ask_health_every: float = 0.0) -> None:
        """Begin to serve, with a health check every so many seconds; 0: none."""
        self._serving.set()
        if ask_health_every and self._watching is None:
            self._watching = self._tasks.spawn(
                self._watch_health(ask_health_every), name=f"modules/health/{self.module_id}"
            )

    def rest(self) -> None:
        self._serving.clear()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def health(self, *, blame: bool = False) -> HealthAnswer:
        """Result of `health_check`; for a module without one, an answer of its loop. Only the periodic check
        counts a missing answer against the module: a client that checks often must not be able to fail a busy
        module. Raises as `call`."""
        return await self.call(
            HEALTH_CHECK,
            HEALTH,
            Nothing(),
            answer=HealthAnswer,
            deadline=self.hook_deadline,
            blame=blame,
        )

    async def _watch_health(self, seconds: float) -> None:
        """Check the health periodically, so that a module that does not answer is noticed even if nothing
        calls it: the breaker counts."""
        logged_unhealthy = False
        while True:
            await asyncio.sleep(seconds)
            try:
                answer = await self.health(blame=True)
            except CorralError:
                continue  # counted; a dead or busy process is handled elsewhere
            if not answer.healthy and not logged_unhealthy:
                _log.warning("module_health.lost", module=self.module_id, detail=answer.detail)
            logged_unhealthy = not answer.healthy

    # --- calls into the module ------------------------------------------------------------------
    async def call(
        self,
        what: str,
        method: str,
        body: object,
        *,
        answer: type[T],
        deadline: float,
        blame: bool = True,
        target: str = "",
    ) -> T:
        """Call the module, counted and watched by the breaker. `what` names the call in reasons, such as
        `event:GROUP_CREATED`; `target` is what answers it, where several do. Without `blame` an overrun is not
        counted against it: the caller's deadline was shorter than the module's. Raises what
        `ModuleProcess.call` raises."""
        with self._watch(what, target=target or what, blame=blame):
            return await self.process.call(method, body, answer=answer, deadline=deadline)

    @contextlib.asynccontextmanager
    async def stream(
        self, what: str, method: str, body: object, *, answer: type[T], deadline: float
    ) -> AsyncIterator[tuple[T, AsyncIterator[bytes]]]:
        """Like `call`, for answers that come in chunks. Only the answer's head is timed and watched: the
        speed of the rest depends on the reader."""
        opening = self.process.stream(method, body, answer=answer, deadline=deadline)
        with self._watch(what, target=what, blame=True):
            head = await opening.__aenter__()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_exit(opening.__aexit__)
            yield head

    @contextlib.contextmanager
    def _watch(self, what: str, *, target: str, blame: bool) -> Iterator[None]:
        began = self._clock.monotonic()
        try:
            yield
        except CallOverrun:
            self.counts.failures += 1
            self.counts.overruns += 1
            if blame:
                self.breaker.overran(target, what=what, began=began, ended=self._clock.monotonic())
            raise
        except asyncio.CancelledError:
            raise
        except ModuleRaised as error:
            self.counts.failures += 1
            self.breaker.answered(target)
            self._note_failure(what, error)
            raise
        except BaseException:  # the call was never sent, or the process is gone: no evidence that it answers
            self.counts.failures += 1
            raise
        else:
            self.breaker.answered(target)
        finally:
            self.counts.took(self._clock.monotonic() - began)

    def _note_failure(self, what: str, error: ModuleRaised) -> None:
        """Log a failure with its traceback, at most once a second: a module may fail at every event."""
        if (unsaid := self.quota.admit("call_failed")) is None:
            return
        _log.warning(
            "module_call.failed",
            module=self.module_id,
            call=what,
            error=f"{error.kind}: {error.detail}"[:1000],
            traceback=error.traceback[-8000:],
            unsaid=unsaid,
        )
        self.log_tail.append(f"{what} failed: {error.kind}: {error.detail}"[:500])
        self.log_tail.extend(error.traceback.strip().splitlines()[-6:])
