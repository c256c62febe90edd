"""Runs of groups that need at most one copy: their node stops them when it has been without a controller for too
long."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from supervised_node import FIRST, SupervisedNode, base_plan

from corral.daemon.link.controller_contact import ControllerContact
from corral.testing import workloads
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually
from corral.wire.features import PeerSupport
from corral.wire.outbox import Outbox
from corral.wire.v1.link_pb2 import DaemonMessage

LIMIT = 60


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def node(scratch, clock):
    node = SupervisedNode(scratch / "node", clock=clock)
    await node.open()
    yield node
    await node.clear()


def single(command: Any = None, **fields: Any) -> Any:
    """The plan of a group that needs at most one copy."""
    return base_plan(command or workloads.reading_commands(), stop_after_seconds=LIMIT, **fields)


def contact_of(node: SupervisedNode) -> ControllerContact:
    assert node.supervision.contact is not None
    return node.supervision.contact


class Controller:
    """A controller as the contact sees it: a connection whose pings are answered, or not."""

    def __init__(self, node: SupervisedNode, *, knows_pings: bool = True) -> None:
        self.supports = PeerSupport(contact=knows_pings)
        self.outbox: Outbox[DaemonMessage] = Outbox(bundle=None)
        self._contact = contact_of(node)

    async def pinged(self) -> int:
        """The number of the next ping."""
        frame = await self.outbox.next_frame()
        assert frame is not None
        return frame.ping.sequence

    async def answers(self) -> None:
        self._contact.answered(await self.pinged())


async def looked(node: SupervisedNode) -> None:
    """The node has looked how long it has been alone, and done what follows from it."""
    assert node.supervision.isolation is not None
    await node.supervision.isolation.look()


async def test_a_node_without_a_controller_stops_what_needs_at_most_one_copy_and_nothing_else(node, clock):
    await node.begin("one", single())
    await node.begin("two", base_plan(workloads.reading_commands()))
    await node.until("one", "RUNNING")
    clock.pass_time(LIMIT - 10)
    await looked(node)
    assert node.run("one").state == "RUNNING"
    clock.pass_time(11)
    run = await node.settled("one")
    assert (run.state, run.outcome.outcome, run.outcome.rung) == ("STOPPED", "isolated", "command stop")
    assert run.reason == "its node had no controller for 60 s (disconnect.stop_after_seconds)"
    assert (run.outcome.restarted_as, run.order.incarnation) == (None, FIRST)
    told = await node.last_status("one")
    assert (told.exit.outcome, told.exit.code, told.reason) == ("isolated", 0, run.reason)
    assert node.run("two").state == "RUNNING"


async def test_a_controller_that_returns_in_time_keeps_it_running(node, clock):
    await node.begin("one", single())
    clock.pass_time(LIMIT - 1)
    controller = Controller(node)
    contact_of(node).on_connected(controller)  # type: ignore[arg-type]
    clock.pass_time(LIMIT - 1)
    contact_of(node).ping()
    await controller.answers()
    await looked(node)
    assert node.run("one").state == "RUNNING"
    assert contact_of(node).seconds_without() < LIMIT
    contact_of(node).on_disconnected()
    clock.pass_time(LIMIT)
    assert (await node.settled("one")).outcome.outcome == "isolated"


async def test_a_session_that_only_looks_open_is_no_controller(node, clock):
    await node.begin("one", single())
    controller = Controller(node)
    contact_of(node).on_connected(controller)  # type: ignore[arg-type]
    await controller.pinged()  # and is not answered
    clock.pass_time(LIMIT)
    assert (await node.settled("one")).outcome.outcome == "isolated"


@pytest.mark.system
async def test_with_a_controller_that_answers_no_pings_an_open_session_is_enough(node, clock):
    await node.begin("one", single())
    contact_of(node).on_connected(Controller(node, knows_pings=False))  # type: ignore[arg-type]
    for _ in range(3):
        clock.pass_time(LIMIT / 2)
        await eventually(lambda: contact_of(node).seconds_without() < LIMIT / 2)
    assert node.run("one").state == "RUNNING"
    contact_of(node).on_disconnected()
    clock.pass_time(LIMIT)
    assert (await node.settled("one")).outcome.outcome == "isolated"


async def test_an_answer_counts_from_when_it_was_asked_for(node, clock):
    contact, controller = contact_of(node), Controller(node)
    contact.on_connected(controller)  # type: ignore[arg-type]
    clock.pass_time(5)
    contact.ping()
    number = await controller.pinged()
    clock.pass_time(50)  # the answer lay in the socket of a process that stood still
    contact.answered(number)
    assert 50 <= contact.seconds_without() < 55
    contact.answered(number)  # a second time it proves nothing
    contact.answered(number + 7)  # nor does one that was never asked for
    assert 50 <= contact.seconds_without() < 55


async def test_the_time_goes_on_over_a_restart_of_the_daemon(node, clock):
    await node.begin("one", single())
    await node.until("one", "RUNNING")
    contact_of(node).on_connected(Controller(node))  # type: ignore[arg-type]
    contact_of(node).on_disconnected()
    clock.pass_time(LIMIT - 20)
    await node.reopen()
    assert LIMIT - 20 <= contact_of(node).seconds_without() < LIMIT
    assert node.run("one").state == "RUNNING"
    clock.pass_time(20)
    assert (await node.settled("one")).outcome.outcome == "isolated"


async def test_a_daemon_that_returns_too_late_stops_it_before_anything_else(node, clock):
    await node.begin("one", single())
    await node.until("one", "RUNNING")
    await node.close()
    clock.pass_time(LIMIT)
    await node.open()
    assert node.run("one").stop.order.isolated
    run = await node.settled("one")
    assert (run.outcome.outcome, run.order.incarnation) == ("isolated", FIRST)


async def test_a_stop_that_had_begun_is_finished_by_the_next_daemon(node, clock):
    await node.begin("one", single(workloads.ignoring_signals()))
    await node.until("one", "RUNNING")
    clock.pass_time(LIMIT)
    await node.until("one", "STOPPING")
    await node.reopen()
    contact_of(node).on_connected(Controller(node))  # type: ignore[arg-type]
    run = await node.settled("one")
    assert (run.outcome.outcome, run.outcome.rung) == ("isolated", "kill")


@pytest.mark.parametrize("restarted", [False, True], ids=["same daemon", "next daemon"])
async def test_a_restart_that_waits_its_turn_does_not_come_without_a_controller(node, clock, restarted):
    restart = {"attempts": 3, "delay_ms": 3_600_000, "max_delay_ms": 3_600_000}
    await node.begin("one", single(workloads.crashing(code=3), restart=restart))
    await eventually(lambda: node.run("one").order.incarnation == FIRST + 1)
    if restarted:
        await node.close()
    clock.pass_time(LIMIT)
    if restarted:
        await node.open()
    run = await node.settled("one")
    if run.order.incarnation == FIRST:  # the daemon ended before the restart was on disk
        assert (run.state, run.outcome.restarted_as) == ("CRASHED", None)
    else:
        assert (run.state, run.outcome.outcome) == ("STOPPED", "never_started")
        assert "no controller for 60 s" in run.reason
    assert not run.files.directory.with_name(str(FIRST + 1)).joinpath("record").exists(), (
        "nothing was executed"
    )


async def rebooted(node: SupervisedNode) -> None:
    """As if the machine had been switched off and on: another boot id, and no word about any end."""
    runs = node.supervision.supervisor.instances.runs()
    places = [run.files.directory for run in runs]
    pids = [run.pid for run in runs]
    await node.close()
    for pid, place in zip(pids, places, strict=True):
        os.kill(pid, signal.SIGKILL)
        await eventually((place / "empty").exists)
        record = place / "record"
        lines = [
            "boot=another" if line.startswith("boot=") else line for line in record.read_text().splitlines()
        ]
        record.write_text("".join(f"{line}\n" for line in lines))
        (place / "exit").unlink()
        (place / "empty").unlink()
        intent = json.loads((place / "intent.json").read_text())
        intent["value"]["boot_id"] = "another"
        (place / "intent.json").write_text(json.dumps(intent))
    await node.open()


@pytest.mark.system
async def test_after_a_reboot_the_controller_decides_whether_it_runs_again(node, reaper):
    await node.begin("one", single())
    await node.begin("two", base_plan(workloads.reading_commands()))
    await node.until("one", "RUNNING")
    await node.until("two", "RUNNING")
    contact_of(node).on_connected(Controller(node))  # type: ignore[arg-type]
    contact_of(node).on_disconnected()
    await rebooted(node)
    one = await node.settled("one")
    assert (one.outcome.outcome, one.outcome.restarted_as) == ("host_rebooted", None)
    await node.until("two", "RUNNING", incarnation=FIRST + 1)


@pytest.mark.trap("T28")
async def test_a_step_of_the_wall_clock_stops_nothing_and_saves_nothing(node, clock):
    await node.begin("one", single())
    for step in (3600, -7200):
        clock.step(step)
        await looked(node)
        assert node.run("one").state == "RUNNING"
    await node.reopen()
    await looked(node)
    assert node.run("one").state == "RUNNING"
    clock.step(-3600)
    clock.pass_time(LIMIT)
    assert (await node.settled("one")).outcome.outcome == "isolated"


async def test_a_damaged_record_of_the_contact_stops_nothing(node):
    await node.begin("one", single())
    await node.until("one", "RUNNING")
    await node.close()
    (node.data / "contact.json").write_text("{")
    await node.open()
    await looked(node)
    assert node.run("one").state == "RUNNING"
