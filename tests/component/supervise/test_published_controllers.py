"""Controllers that speak the published protocol only: no features, no incarnations."""

from __future__ import annotations

import os
import pathlib
import pwd
import signal

import pytest
from supervised_node import QUICK_LADDER, start_frame
from test_daemon_wiring import OrderingController

from corral.testing import workloads
from corral.testing.cluster import LocalCluster
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import StopInstance
from corral.wire.v1.link_pb2 import ControllerMessage


@pytest.fixture
async def published(scratch):
    script = OrderingController(features=())
    async with ScriptedController(script) as controller, LocalCluster(scratch) as cluster:
        controller.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon(
            "n1", None, controllers=[controller.address], instances__development=True
        )
        yield script
        await daemon.app.stop()


def plain_start(id: str, command) -> ControllerMessage:
    return start_frame(id, command, incarnation=0, stop_ladder=QUICK_LADDER)


@pytest.mark.trap("T95")
async def test_an_id_that_has_ended_starts_again_in_a_run_of_its_own(published):
    pids = []
    for turn in range(1, 4):
        published.orders.put_nowait(plain_start("one", workloads.reading_commands()))
        await eventually(
            lambda turn=turn: published.states().count("RUNNING") == turn, state=published.states
        )
        ack = published.of("start_instance_ack")[-1]
        assert ack.accepted
        pids.append(ack.pid)
        published.orders.put_nowait(plain_start("one", workloads.reading_commands()))  # said twice
        await eventually(lambda turn=turn: len(published.of("start_instance_ack")) == 2 * turn)
        assert published.of("start_instance_ack")[-1].pid == ack.pid, "what runs is not started again"
        published.orders.put_nowait(ControllerMessage(stop_instance=StopInstance(instance_id="one")))
        await eventually(
            lambda turn=turn: published.states().count("STOPPED") == turn, state=published.states
        )
    assert len(set(pids)) == 3
    numbers = [ack.incarnation for ack in published.of("start_instance_ack")]
    assert len(set(numbers)) == 3
    assert numbers == sorted(numbers)


@pytest.mark.trap("T95")
async def test_an_id_whose_start_failed_or_crashed_starts_again(published):
    published.orders.put_nowait(plain_start("one", ["/nowhere/to/be/found"]))
    await eventually(lambda: published.of("start_instance_ack"))
    assert not published.of("start_instance_ack")[-1].accepted
    await eventually(
        lambda: published.of("instance_status") and published.states()[-1] in ("STOPPED", "CRASHED")
    )
    published.orders.put_nowait(plain_start("one", workloads.shell("sleep 0.2; kill -KILL $$")))
    await eventually(lambda: published.of("crash_report"))
    assert published.of("crash_report")[-1].exit_code == 128 + signal.SIGKILL
    await eventually(lambda: published.states()[-1] == "CRASHED", state=published.states)
    published.orders.put_nowait(plain_start("one", workloads.reading_commands()))
    await eventually(lambda: published.states()[-1] == "RUNNING", state=published.states)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_under_a_controller_without_tickets_a_root_daemon_shares_its_user(scratch):
    """What such a controller does not say was `shared` when it was made."""
    script = OrderingController(features=())
    settings = {"instances__development": False, "instances__run_as": "nobody"}
    scratch.chmod(0o711)
    async with ScriptedController(script) as controller, LocalCluster(scratch) as cluster:
        controller.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[controller.address], **settings)
        script.orders.put_nowait(plain_start("one", workloads.reading_commands()))
        await eventually(lambda: "RUNNING" in script.states(), state=script.states)
        pid = script.of("instance_status")[-1].pid
        assert pathlib.Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        script.orders.put_nowait(ControllerMessage(stop_instance=StopInstance(instance_id="one")))
        await eventually(lambda: script.states()[-1] == "STOPPED", state=script.states)
        await daemon.app.stop()
