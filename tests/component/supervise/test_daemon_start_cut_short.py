"""A daemon whose start is cancelled where it waits leaves nothing open, no keeper, and does not hang."""

from __future__ import annotations

import pathlib

import pytest
from cut_short import CutShort, Moment, OpenThings, over
from supervised_node import start_frame
from test_daemon_wiring import OrderingController

from corral.daemon.app import open_daemon
from corral.testing import workloads
from corral.testing.cluster import LocalCluster, RecordedLog, daemon_config
from corral.testing.scripted_peers import ScriptedController
from corral.testing.survivors import survivors
from corral.testing.waiting import eventually

MOST = 400

pytestmark = pytest.mark.system


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_start_that_is_cancelled_anywhere_leaves_nothing(
    cluster: LocalCluster, scratch: pathlib.Path, moment: Moment
) -> None:
    controller = await cluster.controller()

    async def start(name: str, cut: CutShort) -> None:
        config = daemon_config(scratch / name, node__id=name, controllers=[controller.grpc_address])
        opening = open_daemon(config, logs=RecordedLog(), join=await controller.join_token(name))
        await cut.run(opening.__aenter__())
        await opening.__aexit__(None, None, None)

    await start("warm-up", CutShort(MOST, moment))
    open_things = OpenThings(scratch)
    for number in range(1, MOST):
        cut = CutShort(number, moment)
        await over(start(f"n{number}", cut))
        assert await open_things.left() == [], f"cancelled {moment} suspension {number}"
        if not cut.reached:
            return
    pytest.fail("it never got through")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_run_is_untouched_by_a_start_that_is_cancelled_anywhere(
    scratch: pathlib.Path, moment: Moment
) -> None:
    script = OrderingController()
    async with ScriptedController(script) as controller, LocalCluster(scratch) as cluster:
        controller.enrol(scratch / "n1", "n1")
        address = controller.address
        daemon = await cluster.daemon("n1", None, controllers=[address])
        await script.orders.put(start_frame("one", workloads.silent()))
        await eventually(lambda: "RUNNING" in script.states())
        await daemon.app.stop()
        config = daemon_config(scratch / "n1", controllers=[address])

        async def start(cut: CutShort) -> int:
            opening = open_daemon(config, logs=RecordedLog())
            app = await cut.run(opening.__aenter__())
            adopted = app.supervision.supervisor.live_count()
            await opening.__aexit__(None, None, None)
            return adopted

        await start(CutShort(MOST, moment))
        runs, open_things = survivors([scratch]), OpenThings(scratch)
        for number in range(1, MOST):
            cut = CutShort(number, moment)
            adopted = await over(start(cut))
            assert await open_things.left() == [], f"cancelled {moment} suspension {number}"
            assert survivors([scratch]) == runs, f"cancelled {moment} suspension {number}"
            if not cut.reached:
                assert adopted == 1
                return
        pytest.fail("it never got through")
