"""RunMonitor a run when the runtime itself fails."""

from __future__ import annotations

import asyncio

from corral.daemon.probes.listening_sockets import SocketTables
from corral.daemon.probes.log_probe import ConsoleGrowth
from corral.daemon.runs.run_files import RunFiles, StopOrder
from corral.daemon.runs.run_monitor import RunMonitor
from corral.daemon.runs.run_readiness import ReadyWatch
from corral.daemon.runs.stop_ladder import StopRequest
from corral.daemon.workload.start_order import StartOrder, default_stop_ladder
from corral.domain.ids import Incarnation, InstanceId
from corral.sdk.runtime import RunExit, RunHandle, RuntimeCapabilities
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually

HANDLE = RunHandle(runtime="test", run_name="one.1024", run_directory="/nowhere", pid=1, started_at_ms=0)


class FailingRuntime:
    """Lives until it is told to end; cannot say so at first."""

    name = "test"

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.asked = 0
        self.signals: list[int] = []
        self.killed = 0

    def capabilities(self) -> RuntimeCapabilities:
        return RuntimeCapabilities(
            kill_tree=True, freeze=False, memory_limit=False, cpu_limit=False, tty=False, run_as=False
        )

    async def wait_exit(self, _: RunHandle) -> RunExit:
        self.asked += 1
        if self.asked == 1:
            raise OSError(24, "Too many open files")
        await self.over.wait()
        return RunExit(known=True, code=7)

    wait_empty = wait_exit

    async def signal(self, _: RunHandle, number: int) -> None:
        self.signals.append(number)

    async def kill(self, _: RunHandle) -> None:
        self.killed += 1


class Listener:
    def ready_changed(self, ready: bool, reason: str) -> None: ...

    def waits_for(self, reason: str) -> None: ...

    def players_counted(self, players: object) -> None: ...


async def test_a_runtime_that_cannot_say_whether_it_lives_is_no_reason_to_end_it(tmp_path):
    runtime = FailingRuntime()
    order = StartOrder(
        instance_id=InstanceId("one"),
        group="test",
        incarnation=Incarnation(1024),
        command=("x",),
        ladder=default_stop_ladder(),
    )
    clock = SystemClock()
    ready = asyncio.Event()
    watch = ReadyWatch(
        order=order,
        files=RunFiles(tmp_path),
        handle=HANDLE,
        runtime=runtime,  # type: ignore[arg-type]  # no probe asks it
        growth=ConsoleGrowth(),
        tables=SocketTables(),
        host="127.0.0.1",
        hide=str,
        listener=Listener(),
        alive_in=lambda: 0.0,
        ready=False,
    )
    minding = RunMonitor(
        runtime=runtime,  # type: ignore[arg-type]  # what minding asks of one
        handle=HANDLE,
        order=order,
        stop=StopRequest(RunFiles(tmp_path)),
        began_at=clock.boottime(),
        started_at=clock.boottime(),
        clock=clock,
        watch=watch,
        ready=False,
        in_time=True,
        now_ready=ready.set,
        now_stopping=lambda _: None,
    )
    minded = asyncio.create_task(minding.until_ended())
    await ready.wait()
    await eventually(lambda: runtime.asked >= 3, state=lambda: f"asked {runtime.asked}, {runtime.signals}")
    assert not minded.done()
    runtime.over.set()
    ending = await minded
    assert (ending.exit.code, ending.rung, runtime.signals, runtime.killed) == (7, "", [], 0)


async def test_of_several_orders_the_strongest_is_followed_and_found_again(tmp_path):
    request = StopRequest(RunFiles(tmp_path))
    await request.make(StopOrder(reason="again", then_restart=True))
    assert not request.stays_stopped
    await request.make(StopOrder(reason="stop"))
    await request.make(StopOrder(reason="again", then_restart=True))
    assert request.stays_stopped
    found = StopRequest(RunFiles(tmp_path))
    found.restore()
    assert (found.order, found.killing.is_set()) == (StopOrder(reason="stop"), False)
    await found.make(StopOrder(reason="kill", force=True))
    assert RunFiles(tmp_path).stop_order() == StopOrder(reason="kill", force=True)
