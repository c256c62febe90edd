"""Record of a run's exit: its outcome, the restart that follows here, the last console lines, and the durable
write."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.daemon.node.disk_space import full_disk
from corral.daemon.runs.crash_loops import with_restart
from corral.daemon.runs.exit_outcome import Life, decide_outcome, is_clean, without_secrets
from corral.daemon.runs.run_files import RunFiles, RunIntent, RunOutcome
from corral.daemon.runs.run_monitor import MonitoredExit
from corral.daemon.runs.run_times import RunTimes
from corral.daemon.runs.services import Services
from corral.daemon.runs.stop_ladder import StopRequest
from corral.daemon.workload.run_secrets import RunMask
from corral.domain.groups.secret_masks import SecretMask
from corral.domain.ids import RESTARTS_PER_START
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.runtimes.console.log import ConsoleLog

_MOST_LINES: Final = 100


class LastLines(msgspec.Struct, frozen=True):
    """The last console lines: where they begin, where the console ends, and when its last byte came."""

    lines: tuple[str, ...] = ()
    offset: int = 0
    end: int = 0
    last_ms: int = 0


def console_end(console: pathlib.Path) -> int:
    with ConsoleLog(console) as log:
        return log.end_offset


def read_last_lines(console: pathlib.Path, mask: SecretMask) -> LastLines:
    """The last lines of a console, without the run's secrets, because they leave the node and are stored where the
    console is not. If the secrets are no longer known they cannot be masked, and the lines are withheld. Blocks for a
    bounded time: at most the last 256 KiB are read."""
    with ConsoleLog(console) as log:
        end = log.end_offset
        found = log.tail(_MOST_LINES)
        times = log.times(max(0, end - 1), end)
    lines = tuple(mask(line.text) for line in found)
    return LastLines(
        lines=(_withheld(mask.unknown),) if mask.unknown and lines else lines,
        offset=found[0].offset if found else end,
        end=end,
        last_ms=times[-1].timestamp_ms if times else 0,
    )


def _withheld(names: frozenset[str]) -> str:
    """The text in place of a crash's last lines."""
    changed = ", ".join(f"%{name}%" for name in sorted(names))
    return (
        f"(withheld: {changed} was changed while no daemon ran, and these lines may hold the value before;"
        " the console has them)"
    )


_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.daemon.runs")

Unwritten = Callable[[RunOutcome, CorralError], RunOutcome]
"""Called when the disk refuses an outcome: it may be sent before it is written. Returns the outcome to write."""


class OutcomeRecord:
    """The outcome of one run. `outcome_of` and `followed` decide, `written` makes it durable."""

    def __init__(
        self,
        services: Services,
        files: RunFiles,
        intent: RunIntent,
        *,
        stop: StopRequest,
        mask: RunMask,
        times: RunTimes,
    ) -> None:
        self._services = services
        self._files = files
        self._intent = intent
        self._order = intent.order
        self._stop = stop
        self._mask = mask
        self._times = times

    async def outcome_of(
        self, ending: MonitoredExit, last: LastLines, *, pid: int, started_at_ms: int
    ) -> RunOutcome:
        """Outcome of a run that was executed, with the restart that follows."""
        uptime_ms = self._times.lived_ms(
            ending.exit, started_at_ms=started_at_ms, last_output_ms=last.last_ms
        )
        outcome = decide_outcome(
            Life(
                exit=ending.exit,
                pid=pid,
                started_at_ms=started_at_ms,
                uptime_ms=uptime_ms,
                clean=ending.ready and is_clean(ending.exit, self._order, uptime_ms=uptime_ms),
                console_end=last.end,
                now_ms=self._services.now_ms(),
                rung=ending.rung,
                stop=self._stop.order,
                ready=ending.ready,
                waited_for=ending.waited_for,
                tail=last.lines,
                tail_offset=last.offset,
            )
        )
        return self.followed(await asyncio.to_thread(self._with_full_disk, outcome))

    def _with_full_disk(self, outcome: RunOutcome) -> RunOutcome:
        """A crash on a full disk gets that in its summary: it may be the cause, and is the first thing to fix.
        Blocks."""
        place = self._services.directories.path(self._order.instance_id, static=self._order.static)
        if outcome.state is not InstanceState.CRASHED or not (full := full_disk(place.parent)):
            return outcome
        return msgspec.structs.replace(
            outcome, summary=f"{outcome.summary}; {full}", reason=f"{outcome.reason}; {full}"
        )

    def followed(self, outcome: RunOutcome) -> RunOutcome:
        """The outcome with the restart that follows here, if any; none while an orphan run of this id lives."""
        services = self._services
        if (lost := services.lost.of(self._order.instance_id)) is not None:
            return msgspec.structs.replace(outcome, reason=f"{outcome.reason}; {lost.reason}")
        began_ms = outcome.started_at_ms or outcome.ended_at_ms
        return with_restart(
            outcome,
            order=self._order,
            stop=self._stop.order,
            crashes=self._intent.crashes if self._intent.boot_id == services.boot_id else (),
            now=services.clock.boottime(),
            age=self._times.age(began_ms, now_ms=services.now_ms()),
            fraction=services.entropy.fraction(),
            last=services.known_runs.last(self._order),
        )

    async def written(self, outcome: RunOutcome, unwritten: Unwritten) -> RunOutcome:
        """Write the outcome without secrets, and return it. A disk that refuses is tried again: an exit that is
        forgotten would be handled twice. Only for an order that was never stored that cannot happen."""
        if self._mask.needed:
            outcome = without_secrets(outcome, await asyncio.to_thread(self._mask.known))
        refused = False
        while True:
            try:
                await asyncio.to_thread(self._store, outcome)
            except CorralError as error:
                if outcome.exit is None and self._is_ordered and not self._files.has_intent():
                    return outcome
                if not refused:
                    refused = True
                    await self._make_room(error)
                outcome = unwritten(outcome, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if outcome.restarted_as is None or not self._stop.stays_stopped:
                return outcome
            # A stop order came during the write: the run stays stopped.
            outcome = msgspec.structs.replace(outcome, restarted_as=None, restart_delay_seconds=0.0)

    @property
    def _is_ordered(self) -> bool:
        """Started by an order, not as a restart."""
        return self._order.incarnation % RESTARTS_PER_START == 0

    def _store(self, outcome: RunOutcome) -> None:
        if not self._files.has_intent():
            self._files.make(self._intent)
        self._files.write_outcome(outcome)

    async def _make_room(self, error: CorralError) -> None:
        """Free disk space for the outcome: the run's own files go first, since they may be what fills the disk. Not
        those of a static directory, nor of one that an orphan run of this id uses."""
        _log.error("outcome_write.failed", run=self._intent.name, reason=str(error))
        directories, id = self._services.directories, self._order.instance_id
        if self._order.static or self._services.lost.of(id) is not None:
            return
        if directories.discard(id, self._order.incarnation):
            await directories.empty_bin()
