"""Supervisor of every instance of this node: orders, adoption, inventory, detaching.

Orders are decided in one step of the event loop, before anything is awaited: a thousand starts of one id make one
run. Every order is answered with the state at that moment, never ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.daemon.probes.minecraft_ping import PlayerCount
from corral.daemon.runs.command_ids import CommandIds, Fate, check_id, may_have_arrived
from corral.daemon.runs.exit_outcome import failed_start
from corral.daemon.runs.orphan_runs import OrphanRun
from corral.daemon.runs.orphan_runs import listed as lost_entry
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import FailedStart, RunIntent, StopOrder
from corral.daemon.runs.run_messages import running_instance
from corral.daemon.runs.services import Services
from corral.daemon.supervise.adoption import Leftover, find_leftovers
from corral.daemon.supervise.instance import Instance
from corral.daemon.supervise.node_runs import InstanceTable
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import VALIDATION
from corral.domain.groups.instance_records import live
from corral.domain.ids import RESTARTS_PER_START, node_incarnation
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.sdk.runtime import AdoptionKind
from corral.wire.v1.instance_pb2 import RunningInstance

_ADOPT_AT_ONCE: Final = 32
_ADOPT_SECONDS: Final = 5.0
_DRAINED_SECONDS: Final = 5.0
_MOST_ABOUT_MODULES: Final = 256 * 1024
_log = structlog.get_logger("corral.daemon.supervise")


class StartRefusal(Exception):
    """A refused start. `run` is the run that the node has under this id."""

    def __init__(self, failure: FailedStart, run: Run | None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.run = run


class InstanceSupervisor:
    """`adopt` first, then orders; `detach` at the end."""

    def __init__(self, services: Services, instances: InstanceTable) -> None:
        self._services = services
        self.instances: Final = instances
        self._strays: list[Instance] = []
        self.drained_for: str | None = None
        """Why the node is drained: no new runs are taken until it is undrained. None: it is not."""

    # inventory

    def is_active(self, instance_id: str) -> bool:
        """Whether something runs under this id, or is about to."""
        found = self.instances.get(instance_id)
        return (found is not None and found.active) or any(
            stray.active and stray.id == instance_id for stray in list(self._strays)
        )

    def lost(self) -> list[OrphanRun]:
        """Orphan runs: they live here without their run directory."""
        return self._services.lost.all()

    def live_count(self) -> int:
        return sum(live(run.state) for run in self.instances.runs())

    # orders

    def start(self, order: StartOrder, *, begun: Callable[[Run], None]) -> Run:
        """Start this run, or find it started already; `begun` is called in the first case only, when its start has
        succeeded or failed. StartRefusal when the id is taken by another run, or the node is drained. An order without
        an incarnation is for the current run; when that has ended, a new one begins."""
        existing = self.instances.get(order.instance_id)
        if not order.incarnation:
            if existing is not None and not existing.current.ended:
                return existing.current
            order = self._numbered(order, existing)
        if existing is not None:
            present = existing.current
            if present.order.incarnation == order.incarnation:
                return present
            self._refuse_other(present, existing, order)
        if self.drained_for is not None:
            raise StartRefusal(failed_start(VALIDATION, _drained(self.drained_for)), None)
        if (lost := self._services.lost.of(order.instance_id)) is not None:
            raise StartRefusal(failed_start(VALIDATION, lost.refusal()), None)
        intent = RunIntent(
            order=order,
            boot_id=self._services.boot_id,
            accepted_at_ms=self._services.now_ms(),
            nonce=self._services.new_nonce(),
        )
        files = self._services.runs.files(order.instance_id, order.incarnation)
        instance = Instance(self._services, Run(self._services, files, intent, begun=begun))
        self.instances.put(instance)
        instance.start()
        return instance.current

    def _numbered(self, order: StartOrder, existing: Instance | None) -> StartOrder:
        last = existing.current.order.incarnation if existing is not None else None
        number = node_incarnation(self._services.now_ms(), after=last)
        return msgspec.structs.replace(order, incarnation=number)

    def _refuse_other(self, present: Run, existing: Instance, order: StartOrder) -> None:
        state = f"is {present.state} as run {present.order.incarnation}"
        error: CorralError | None = None
        if order.incarnation < present.order.incarnation:
            error = Rejected(
                Code.STALE_INCARNATION,
                f"instance '{order.instance_id}' {state}; run {order.incarnation} is past",
                hint="nothing was done",
            )
        elif existing.active:
            error = Retryable(
                Code.CONFLICT,
                f"instance '{order.instance_id}' {state} and cannot start as {order.incarnation}",
                hint="stop it and wait for STOPPED",
                retry_after=1.0,
            )
        if error is not None:
            raise StartRefusal(failed_start(VALIDATION, error), present)

    async def stop(self, instance_id: str, *, incarnation: int, order: StopOrder) -> Run:
        """Request its stop, if it is this run (0: the current one); NOT_FOUND, STALE_INCARNATION."""
        run = self.expect(instance_id, incarnation)
        await run.ask_stop(order)
        return run

    async def send_command(self, instance_id: str, *, incarnation: int, line: str) -> Run:
        """Send one line to the input of this run (0: the current one). NOT_FOUND, STALE_INCARNATION, NOT_RUNNING, and
        what the runtime refuses; nothing is sent then."""
        run = self.expect(instance_id, incarnation)
        if run.handle is None:
            raise Rejected(
                Code.NOT_RUNNING,
                f"instance '{instance_id}' is {run.state} and reads no commands",
                hint="wait until it is RUNNING",
            )
        await run.runtime.send_command(run.handle, line)
        return run

    async def send_command_once(
        self, instance_id: str, *, incarnation: int, line: str, id: str, repeated: bool
    ) -> bool:
        """The same for a command with an id, which reaches this run once, however often it is sent, over restarts of
        the daemon, and also when the run has ended meanwhile. True: it had arrived before. `repeated`: it may have
        been sent before. MAY_HAVE_ARRIVED when that is unknown: it is not sent again then."""
        check_id(id)
        run = self.instances.find(instance_id)
        if run is None:
            if repeated:
                raise may_have_arrived(instance_id)
            raise _unknown(instance_id)
        files = self._services.runs.files(instance_id, incarnation or run.order.incarnation)
        ids = CommandIds(files.directory, boot_id=self._services.boot_id)
        known = await asyncio.to_thread(ids.find, id)
        if known.fate is Fate.ARRIVED:
            return True
        if known.fate is Fate.BEGUN or (repeated and not known.certain):
            raise may_have_arrived(instance_id)
        self.expect(instance_id, incarnation)
        place = await asyncio.to_thread(ids.begin, id)
        try:
            await self.send_command(instance_id, incarnation=incarnation, line=line)
        except CorralError:
            ids.settle(place, Fate.WITHDRAWN)
            raise
        ids.settle(place, Fate.ARRIVED)
        return False

    def expect(self, instance_id: str, incarnation: int) -> Run:
        run = self.instances.find(instance_id)
        if run is None:
            raise _unknown(instance_id)
        if incarnation not in (0, run.order.incarnation):
            raise Rejected(
                Code.STALE_INCARNATION,
                f"instance '{instance_id}' is in run {run.order.incarnation} ({run.state}), not {incarnation}",
                hint="nothing was done",
            )
        return run

    def workload_reported_ready(self, instance_id: str, incarnation: int) -> bool:
        """A workload's own report that its run, or a restart of it, is ready: they share their token. False when no
        such run is here."""
        run = self._of_start(instance_id, incarnation)
        if run is None:
            return False
        run.readiness.workload_reported_ready()
        return True

    def workload_reported_not_ready(self, instance_id: str, incarnation: int) -> bool:
        """The contrary, until it reports that it is ready. False when no such run is here."""
        run = self._of_start(instance_id, incarnation)
        if run is None:
            return False
        run.readiness.workload_reported_not_ready()
        return True

    def _of_start(self, instance_id: str, incarnation: int) -> Run | None:
        """The living run of this start, be it a restart."""
        run = self.instances.find(instance_id)
        same = (
            run is not None
            and run.order.incarnation // RESTARTS_PER_START == incarnation // RESTARTS_PER_START
        )
        return run if run is not None and same and not run.ended else None

    def workload_reported_players(self, instance_id: str, incarnation: int, players: PlayerCount) -> None:
        """A workload's own count, of this very run: a restart has other players."""
        run = self.instances.find(instance_id)
        if run is not None and run.order.incarnation == incarnation and not run.ended:
            run.readiness.workload_reported_players(players)

    async def stop_all(self, order: StopOrder) -> None:
        """Stop everything and wait until nothing is left."""
        everything = (*self.instances.all(), *self._strays)
        active = [instance for instance in everything if instance.active]
        await asyncio.gather(*(instance.ask_stop(order) for instance in active))
        await asyncio.gather(*(instance.settled() for instance in active))
        for lost in self.lost():
            await self.end_lost(lost.instance_id, lost.incarnation)

    async def end_lost(self, instance_id: str, incarnation: int) -> bool:
        """Kill this run, if it is an orphan: without a directory it has no stop ladder. False when it is none."""
        lost = self._services.lost.of(instance_id)
        if lost is None or incarnation != lost.incarnation:
            return False
        await self._services.lost.end(lost, look=self.look_for_lost)
        return True

    async def look_for_lost(self) -> None:
        await self._services.lost.look(lambda: [run.name for run in self.instances.runs()])

    async def settled(self, instance_id: str) -> None:
        """Wait until nothing of it is left and no restart follows."""
        found = self.instances.get(instance_id)
        if found is not None:
            await found.settled()

    # lifecycle of the daemon

    async def adopt(self) -> None:
        """Adopt everything an earlier daemon left: living, exited and never executed runs. On return each of them is
        in the table, and orders may come."""
        found = await asyncio.to_thread(self._services.runs.all)
        leftovers = await asyncio.to_thread(find_leftovers, found)
        unended = {leftover.path for leftover in leftovers if leftover.outcome is None}
        for run in found:
            if run.path not in unended:
                self._services.consoles.attach(
                    run.instance_id, run.incarnation, str(run.path / "console"), ended=True
                )
        limit = asyncio.Semaphore(_ADOPT_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for leftover in leftovers:
                group.create_task(self._adopt(leftover, limit), name=f"supervise/adopt/{leftover.path.name}")
        if leftovers:
            _log.info("instances.adopted", found=len(leftovers), live=self.live_count())

    async def _adopt(self, leftover: Leftover, limit: asyncio.Semaphore) -> None:
        run = Run(self._services, leftover.files, leftover.intent)
        instance = Instance(self._services, run)
        if leftover.newest:
            self.instances.put(instance)
        await self._stop_overdue(leftover, run)
        if leftover.outcome is not None:
            instance.remember(leftover.outcome, reported=leftover.reported, newest=leftover.newest)
            return
        found = None
        async with limit:
            # The instance retries, and reports why; no run keeps the others waiting, nor the daemon
            # from its start.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_ADOPT_SECONDS):
                    directory = str(leftover.path)
                    found = await self._services.runtimes.of(directory).adopt(directory)
        _log.info("instance.adopted", run=run.name, found=found.kind if found else "unknown")
        if not leftover.newest:
            self._strays.append(instance)
            await run.stop.make(StopOrder(reason="a later run of this instance exists", force=True))
        # Before it can be stopped: what its process was given can be read only while that lives.
        await run.mask.learn(found.handle if found and found.kind is AdoptionKind.ALIVE else None)
        instance.adopt(found)

    async def _stop_overdue(self, leftover: Leftover, run: Run) -> None:
        """Before anything follows: a run that was to be stopped meanwhile is neither started nor restarted."""
        over = leftover.outcome is not None and leftover.outcome.restarted_as is None
        order = None if over or not leftover.newest else self._services.overdue(run.intent)
        if order is not None:
            _log.warning("isolated_instance.stopped", run=run.name, reason=order.reason)
            run.stop.restore()
            await run.stop.make(order)

    async def detach(self) -> None:
        """Detach from everything; what runs goes on running."""
        await asyncio.gather(*(instance.detach() for instance in (*self.instances.all(), *self._strays)))

    def forget(self, instance_id: str) -> None:
        """Forget an instance whose last trace on disk is gone."""
        found = self.instances.get(instance_id)
        if found is not None and not found.active:
            self.instances.remove(instance_id)


def running_instances(
    supervisor: InstanceSupervisor, confirmed: Callable[[int], bool]
) -> list[RunningInstance]:
    """The inventory of a handshake: what lives, and exits that the controller has not confirmed."""
    listed = [
        running_instance(instance.current)
        for instance in supervisor.instances.all()
        if instance.active or instance.ended_at_number is None or not confirmed(instance.ended_at_number)
    ]
    _shorten(listed)
    return [*listed, *map(lost_entry, supervisor.lost())]


def _shorten(listed: list[RunningInstance]) -> None:
    """Leave module changes out where the message has no room: they were reported before, and stay valid."""
    size = 0
    for run in listed:
        size += sum(change.ByteSize() for change in run.module_changes)
        size += sum(map(len, run.modules_missing))
        if size > _MOST_ABOUT_MODULES:
            run.ClearField("module_changes")
            run.ClearField("modules_missing")


def _drained(reason: str) -> Retryable:
    return Retryable(
        Code.NODE_DRAINING,
        f"this node is drained and takes no new runs: {reason}",
        hint="it is placed on another node, or starts here after 'corral node undrain'",
        retry_after=_DRAINED_SECONDS,
    )


def _unknown(instance_id: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"there is no instance '{instance_id[:80]}' on this node")
