"""One module's process, from the host's side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

import structlog

from corral.errors import CorralError
from corral.modules.process.channel import Channel
from corral.modules.process.exit_reasons import (
    BAD_FRAME,
    FLOOD,
    SOCKET_CLOSED,
    death_reason,
    ended_for,
    read_crash_output,
)
from corral.modules.process.frame_heads import LATE, FrameHead
from corral.modules.process.host_calls import HostCalls
from corral.modules.process.module_calls import ModuleCalls
from corral.modules.process.process_values import (
    Death,
    FinishResult,
    Limits,
    Notice,
    OverLimit,
    Sample,
    Serve,
)
from corral.modules.process.usage_sample import sample_tree
from corral.modules.process.zygote_deaths import NO_VERDICT, DeathVerdict
from corral.sdk.protocol.frame_limits import FrameLimit, limit_of, shown
from corral.sdk.protocol.frames import (
    Answer,
    Call,
    Cancel,
    Chunk,
    Credit,
    Failure,
    FrameTooLarge,
    Message,
    encode_body,
)
from corral.sdk.protocol.frames import Notice as NoticeFrame
from corral.sdk.protocol.messages import FINISH, HOOK_PREFIX, Lingering, Nothing
from corral.sdk.runner.zygote_messages import Ended
from corral.system.aio.tasks import Tasks
from corral.system.aio.token_bucket import TokenBucket

_log = structlog.get_logger("corral.modules.process")

T = TypeVar("T")

_CLOSED_SECONDS: Final = 1.0
"""Seconds for a process that closed its end of the socket to end by itself; a death is reported sooner."""
_START: Final = f"{HOOK_PREFIX}on_start"
_HARMFUL: Final = (
    "what all modules are forked from was lost again and again, and no other module ran each time"
)
_REFUSED_AT_ONCE: Final = 8.0
_REFUSED_PER_SECOND: Final = 0.1
"""Rate of messages over a limit above which a module is cut off: the SDK refuses all of them itself."""


class PoolCallbacks(Protocol):
    """The methods that a process needs of its process pool."""

    def end(self, process: ModuleProcess) -> None:
        """Have it killed with all its descendants; its death is reported later."""

    def starts(self, process: ModuleProcess) -> None:
        """Its `on_start` is about to be called."""

    def usage(self, process: ModuleProcess) -> Sample | None: ...

    def lingers(self, process: ModuleProcess, lingering: Lingering | None) -> None:
        """The process was sent `finish` and is still running."""

    def finished(self, process: ModuleProcess, ending: FinishResult) -> None: ...


class ModuleProcess:
    """Lives until `death` is done. Made by a `ProcessPool`, which calls `ended` once."""

    def __init__(
        self,
        module_id: str,
        *,
        number: int,
        pid: int,
        pidfd: int,
        words: int,
        connection: socket.socket,
        limits: Limits,
        serve: Serve,
        on_notice: Notice,
        pool: PoolCallbacks,
    ) -> None:
        self.module_id = module_id
        self.number = number
        self.pid = pid
        self.limits = limits
        self.memory_bytes: int | None = None
        """Memory of the process with its descendants, as measured for its limit; None: not measured yet."""
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self._pidfd = pidfd
        self._words = words
        self._pool = pool
        self._on_notice = on_notice
        self._cut_off_reason = ""
        self._why = ""
        self._over_limits = TokenBucket(
            burst=_REFUSED_AT_ONCE,
            per_second=_REFUSED_PER_SECOND,
            monotonic=asyncio.get_running_loop().time,
        )
        self._notice_failed = False
        self._closed: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._finishing: asyncio.Task[FinishResult] | None = None
        self._last: Sample | None = None
        self._channel = Channel(
            connection, take=self._take, lost=self._lost, limit=self._limit, refused=self._refused
        )
        self._calls = ModuleCalls(module_id, self._channel, self._cut_off)
        self._serving = HostCalls(module_id, self._channel, serve, self._cut_off)

    async def call(self, method: str, body: object, *, answer: type[T], deadline: float) -> T:
        """CallOverrun, ModuleRaised, ProcessGone or ModuleBusy, and nothing else."""
        if method == _START:
            self._pool.starts(self)
        return await self._calls.call(method, body, answer=answer, deadline=deadline)

    def stream(
        self, method: str, body: object, *, answer: type[T], deadline: float
    ) -> AbstractAsyncContextManager[tuple[T, AsyncIterator[bytes]]]:
        """The answer and the chunks that follow it, which raise as `call` does. The deadline applies to the
        answer and to each pause between chunks; leaving the context cancels the rest."""
        return self._calls.stream(method, body, answer=answer, deadline=deadline)

    def notify(self, method: str, body: object) -> None:
        """Send a notice. Never blocks. Dropped when the process is gone; a process that does not read is cut
        off in the end."""
        try:
            self._channel.send(NoticeFrame(method, encode_body(body)))
        except FrameTooLarge as error:
            _log.warning("module_notice.skipped", module=self.module_id, method=method, why=str(error))

    async def finish(self, *, grace: float) -> FinishResult:
        """Let it end by itself; after `grace` seconds its whole tree is killed. Further calls wait for the
        same end; cancelling a caller does not stop it."""
        if self._finishing is None:
            self._finishing = self._tasks.spawn(
                self._finish(grace), name=f"modules/finish/{self.module_id}", awaited=True
            )
        return await asyncio.shield(self._finishing)

    async def kill(self) -> Death:
        """End its whole tree now. May be called again."""
        self.end()
        death = await asyncio.shield(self.death)
        await self._serving.ended()
        return death

    def end(self) -> None:
        """Like `kill`, without waiting for the death."""
        if not self.death.done():
            self._pool.end(self)

    def sample(self) -> Sample | None:
        """Present usage, descendants included; after its death, what it had used."""
        if not self.death.done():
            found = self._pool.usage(self) or sample_tree(self.pid, memory_bytes=self.memory_bytes)
            self._last = found or self._last
        return self._last

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this very process only; no effect when it has ended."""
        if not self.death.done():
            with contextlib.suppress(OSError):  # ended, or no permission: it is ended otherwise, too
                signal.pidfd_send_signal(self._pidfd, number)

    def ended(self, report: Ended, verdict: DeathVerdict = NO_VERDICT) -> None:
        """Called by the pool when nothing of the process is left. What it sent before is read first.
        `verdict`: the conclusion about the loss of the zygote that it died of."""
        if self.death.done():
            return
        self._serving.end()
        self._channel.drain()
        reason = death_reason(
            report.status,
            forced=ended_for(self._cut_off_reason, report.reason, report.status),
            peak_bytes=report.peak_bytes,
            memory_bytes=self.limits.memory_mb << 20,
        )
        self._last = Sample(
            cpu_seconds=round(report.cpu_seconds, 3),
            memory_bytes=report.peak_bytes,
            threads=self._last.threads if self._last else 0,
            processes=self._last.processes if self._last else 0,
            open_files=self._last.open_files if self._last else 0,
        )
        words = read_crash_output(self._words)
        death = Death(
            reason=reason,
            status=report.status,
            sample=self._last,
            strays=report.strays,
            why=_HARMFUL if verdict.blamed == self.module_id else self._why,
            last_words=words,
            blamed=verdict.blamed == self.module_id,
            held_seconds=verdict.held.get(self.module_id, 0.0),
        )
        self._close(death)

    async def settled(self) -> None:
        """After the death: wait until no task of the host works for it any more."""
        await self._serving.ended()
        await self._tasks.wait()

    def _close(self, death: Death) -> None:
        if self._closed is not None:
            self._closed.cancel()
        self._channel.close()
        os.close(self._pidfd)
        os.close(self._words)
        self.death.set_result(death)
        self._calls.end(death)
        _log.info("module_process.stopped", module=self.module_id, pid=self.pid, reason=death.reason)

    async def _finish(self, grace: float) -> FinishResult:
        lingering: Lingering | None = None
        forced = False
        try:
            async with asyncio.timeout(grace):
                with contextlib.suppress(CorralError):
                    lingering = await self.call(FINISH, Nothing(), answer=Lingering, deadline=grace)
                self._channel.end_output()
                if not self.death.done():
                    self._pool.lingers(self, lingering)
                await asyncio.shield(self.death)
        except TimeoutError:
            forced = True
        death = await self.kill() if forced else self.death.result()
        ending = FinishResult(lingering=lingering, killed=forced or death.strays > 0, death=death)
        self._pool.finished(self, ending)
        return ending

    def _limit(self, head: FrameHead) -> FrameLimit:
        if head.tag in ("answer", "failure") and not self._calls.method(head.number):
            return LATE
        return head.fixed_limit or limit_of(head.method or self._calls.method(head.number))

    def _refused(self, head: FrameHead, problem: str) -> None:
        """A message is over a limit: its waiting caller gets the error, and a module that goes on is cut off.
        A late answer, which no call waits for, is no fault."""
        method = head.method or self._calls.method(head.number)
        if head.tag in ("chunk", "cancel", "credit"):
            self._cut_off(FLOOD if head.tag == "chunk" else BAD_FRAME, f"a {head.tag} of it {problem}")
        elif head.tag == "call":
            self._serving.refuse(head.number, method, problem)
            self._note_over_limit(head.tag, method, problem)
        elif head.tag == "notice" or method:
            self._calls.refuse(head.number, problem)
            self._note_over_limit(head.tag, method, problem)

    def _note_over_limit(self, tag: str, method: str, problem: str) -> None:
        self._over_limits.spend(1.0)
        if self._over_limits.wait() > 0:
            what = f"{tag} '{shown(method)}'"
            self._cut_off(FLOOD, f"again and again it sent more than it may; the last {what} {problem}")

    def _take(self, message: Message) -> None:
        match message:
            case Answer() | Failure() | Chunk():
                self._calls.take(message)
            case Call() | Cancel():
                self._serving.take(message)
            case NoticeFrame():
                self._take_notice(message)
            case Credit():
                pass  # nothing is streamed towards modules

    def _take_notice(self, notice: NoticeFrame) -> None:
        try:
            self._on_notice(notice.method, notice.body)
        except OverLimit as error:
            self._note_over_limit("notice", notice.method, str(error))
        except Exception as error:
            if not self._notice_failed:  # the first one is enough: a module may send thousands a second
                self._notice_failed = True
                _log.error(
                    "module_notice.failed", module=self.module_id, method=notice.method[:64], exc_info=error
                )

    def _lost(self, reason: str, why: str) -> None:
        if reason == SOCKET_CLOSED:
            loop = asyncio.get_running_loop()
            self._closed = loop.call_later(_CLOSED_SECONDS, self._still_there)
        else:
            self._cut_off(reason, why)

    def _still_there(self) -> None:
        if not _has_ended(self._pidfd) and self._finishing is None:
            self._cut_off(SOCKET_CLOSED)

    def _cut_off(self, reason: str, why: str = "") -> None:
        """End the process through its own fault: its messages are ignored from here on."""
        if self.death.done() or self._cut_off_reason:
            return
        self._cut_off_reason, self._why = reason, why
        _log.warning("module_process.killed", module=self.module_id, pid=self.pid, reason=reason, why=why)
        self._channel.close()
        self._serving.end()
        self.end()


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
