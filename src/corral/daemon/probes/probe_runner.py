"""Runner of the probes of one run, from its start until each has succeeded; then of the player count, as long as it
lives."""

from __future__ import annotations

import asyncio
import math
import os
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from corral.daemon.probes.listening_sockets import RunSockets
from corral.daemon.probes.log_probe import ConsoleGrowth, LogProbe
from corral.daemon.probes.minecraft_ping import PlayerCount, ping
from corral.daemon.probes.port_probes import LOCAL, Mask, NotYet, shown, try_http, try_tcp
from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.errors import CorralError
from corral.sdk.runtime import Execution

_ANYWHERE: Final = {"": LOCAL, "0.0.0.0": LOCAL, "::": "::1"}  # noqa: S104 - where the workload listens, not the daemon
"""Addresses that can be listened on but not connected to."""
PLAYERS_SECONDS: Final = 5.0
"""Between two requests for the players, and the timeout of one."""
_FAILURES_TO_FORGET: Final = 3
_COMMAND_MARGIN: Final = 10.0
_log = structlog.get_logger("corral.daemon.probes")

Execute = Callable[[tuple[str, ...], float], Awaitable[Execution]]
"""Run a command beside the workload, for so many seconds at most."""


class ReadinessProbes:
    """Probes of one run. Methods belong to the loop's thread; cancelling them does no harm. The constructor refuses an
    invalid pattern (INVALID_PATTERN)."""

    def __init__(
        self,
        *,
        probes: Sequence[ProbeSpec],
        ports: Sequence[LeasedPort],
        console: str | os.PathLike[str],
        growth: ConsoleGrowth,
        execute: Execute,
        sockets: RunSockets | None = None,
        host: str = LOCAL,
        line_buffered: bool = False,
        name: str = "",
        mask: Mask = str,
    ) -> None:
        self._ports = {port.name: port for port in ports}
        self._sockets = sockets
        self._console = os.fspath(console)
        self._growth = growth
        self._execute = execute
        self._host = _ANYWHERE.get(host, host)
        self._line_buffered = line_buffered
        self._name = name
        self._mask = mask
        self._workload_ready = asyncio.Event()
        self._counts: PlayerCount | None = None
        self._watches = [_Watch(spec, self._log_probe(spec)) for spec in probes]

    @property
    def ready(self) -> bool:
        return all(watch.succeeded for watch in self._watches)

    @property
    def last_seen(self) -> str:
        """The missing conditions, as text: each probe that has not succeeded, and what it saw last."""
        return "; ".join(
            f"{watch.title(self._mask)}: {self._seen(watch)}"
            for watch in self._watches
            if not watch.succeeded
        )

    @property
    def counts_players(self) -> bool:
        return any(watch.spec.kind is ProbeKind.MINECRAFT for watch in self._watches)

    def workload_reported_ready(self) -> None:
        """The workload's own readiness call has arrived; it may come before `until_ready`."""
        self._workload_ready.set()

    async def until_ready(self) -> None:
        """Return when every probe has succeeded once. It has no deadline of its own, and raises nothing."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                if not watch.succeeded:
                    name = f"probes/{watch.spec.kind}/{self._name}"
                    group.create_task(self._until_success(watch), name=name)

    async def watch_players(
        self, report: Callable[[PlayerCount | None], None], *, interval: float = PLAYERS_SECONDS
    ) -> None:
        """Report every change of the number of players, for ever; None once they are not known any more. Returns at
        once when no probe can count players."""
        spec = next((w.spec for w in self._watches if w.spec.kind is ProbeKind.MINECRAFT), None)
        if spec is None:
            return
        watch = _Watch(spec, None)
        failures, reported = 0, self._counts
        if reported is not None:
            report(reported)
            await asyncio.sleep(interval)
        else:
            # A daemon that starts adopts all runs at once: their requests are spread over the interval.
            await asyncio.sleep(interval * zlib.crc32(self._name.encode()) / 2**32)
        while True:
            answered = await self._succeeds(watch, most=PLAYERS_SECONDS)
            failures = 0 if answered else failures + 1
            if failures == 0 or failures >= _FAILURES_TO_FORGET:
                found = self._counts if answered else None
                if found != reported:
                    report(reported := found)
            await asyncio.sleep(interval)

    async def _until_success(self, watch: _Watch) -> None:
        spec = watch.spec
        if watch.log is not None:
            await self._until_line(watch, watch.log)
        elif spec.kind is ProbeKind.WORKLOAD:
            await self._workload_ready.wait()
        else:
            while not await self._succeeds(watch):
                _log.debug("probe.failed", run=self._name, kind=spec.kind, seen=watch.seen)
                await asyncio.sleep(spec.interval_ms / 1000)
        watch.succeeded = True
        _log.debug("probe.succeeded", run=self._name, kind=spec.kind)

    async def _until_line(self, watch: _Watch, probe: LogProbe) -> None:
        while True:
            try:
                await probe.until_seen()
            except Exception as error:  # the same: an answer that cannot be read now may be readable later
                watch.seen = f"the console cannot be read: {error}"
                await asyncio.sleep(watch.spec.interval_ms / 1000)
                watch.seen = ""
            else:
                return

    async def _succeeds(self, watch: _Watch, *, most: float = math.inf) -> bool:
        """One attempt, within its timeout and so many seconds at most."""
        seconds = min(watch.spec.timeout_ms / 1000, most)
        margin = _COMMAND_MARGIN if watch.spec.kind is ProbeKind.COMMAND else 0.0
        try:
            async with asyncio.timeout(seconds + margin):
                await self._attempt(watch.spec, seconds)
        except NotYet as missing:
            watch.seen = missing.masked_text(self._mask)
        except TimeoutError:
            watch.seen = f"no answer within {seconds:g} s"
        except CorralError as error:
            watch.seen = error.message
        except Exception as error:  # a probe that fails on an unexpected answer must not end the run
            seen = f"the probe failed: {type(error).__name__}"
            if seen != watch.seen:
                _log.error("probe_attempt.failed", run=self._name, kind=watch.spec.kind, exc_info=error)
            watch.seen = seen
        else:
            return True
        return False

    async def _attempt(self, spec: ProbeSpec, seconds: float) -> None:
        if spec.kind is ProbeKind.TCP:
            await try_tcp(self._host, self._port(spec))
        elif spec.kind is ProbeKind.HTTP:
            await try_http(spec, self._host, self._port(spec))
        elif spec.kind is ProbeKind.MINECRAFT:
            self._counts = await ping(self._host, self._port(spec))
        elif spec.kind is ProbeKind.LISTEN:
            await self._try_listening(spec)
        else:
            done = await self._execute(spec.command, seconds)
            if done.code != 0:
                output = done.output.strip()
                ending = ", its output ends with" if output else ""
                raise NotYet(f"the command exited with {done.code}{ending}", output=output, last=True)

    async def _try_listening(self, spec: ProbeSpec) -> None:
        port = self._leased(spec)
        if spec.protocol is not None:
            port = msgspec.structs.replace(port, protocol=PortProtocol(spec.protocol))
        missing = await self._sockets.missing(port) if self._sockets is not None else ""
        if missing:
            raise NotYet(missing)

    def _port(self, spec: ProbeSpec) -> int:
        return self._leased(spec).port

    def _leased(self, spec: ProbeSpec) -> LeasedPort:
        if spec.port not in self._ports:
            raise NotYet(f"the instance has no port '{spec.port}'")
        return self._ports[spec.port]

    def _log_probe(self, spec: ProbeSpec) -> LogProbe | None:
        if spec.kind is not ProbeKind.LOG:
            return None
        return LogProbe(spec.pattern, self._console, self._growth)

    def _seen(self, watch: _Watch) -> str:
        if watch.spec.kind is ProbeKind.WORKLOAD:
            return "the workload has not called POST /api/v1/workload/ready"
        if watch.log is None or watch.seen:
            return watch.seen or "there was no attempt yet"
        if self._line_buffered:
            return watch.log.seen(self._mask)
        return f"{watch.log.seen(self._mask)} (a program that buffers its output needs 'line_buffered: true')"


class _Watch:
    """State of one probe."""

    def __init__(self, spec: ProbeSpec, log: LogProbe | None) -> None:
        self.spec = spec
        self.log = log
        self.succeeded = False
        self.seen = ""

    def title(self, mask: Mask) -> str:
        """The probe as people know it from their document, without the arguments of a command and the query of a path: more
        people read the sentences than the document."""
        spec = self.spec
        if spec.kind is ProbeKind.LOG:
            return f"log probe {shown(spec.pattern, 80, mask=mask)}"
        if spec.kind is ProbeKind.COMMAND:
            return f"command probe {shown(spec.command[0], 80, mask=mask)}"
        if spec.kind is ProbeKind.WORKLOAD:
            return "workload probe"
        path = f" {spec.path.partition('?')[0][:80]}" if spec.kind is ProbeKind.HTTP else ""
        return f"{spec.kind} probe of port '{spec.port}'{path}"
