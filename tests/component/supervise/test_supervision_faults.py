"""Exceptions of ours while an instance is supervised: an end with a reason, never a loop."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest
import structlog
from supervised_node import FIRST, SupervisedNode, base_plan

from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.errors import Code, Rejected
from corral.testing import workloads
from corral.testing.waiting import eventually

TRANSIENT, PERMANENT = 2, 1
SECRET_WORD = "what-nobody-may-see"
ABSENT = Rejected(Code.RUNTIME_UNAVAILABLE, "the run is of a runtime which this daemon does not have")


class Faulty:
    """A runtime of this node in which some calls raise what no runtime should."""

    def __init__(self, given: Any, node: FaultyRuntimes) -> None:
        self._given = given
        self._node = node

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._given, name)
        if name not in self._node.broken:
            return real

        async def call(*args: Any, **options: Any) -> Any:
            self._node.calls.append(name)
            if name == "start" and "after" in self._node.broken:
                await real(*args, **options)
            raise self._node.errors.get(name, LookupError(SECRET_WORD))

        return call


class FaultyRuntimes:
    def __init__(self, given: Any, broken: set[str], calls: list[str], errors: dict[str, Exception]) -> None:
        self._given = given
        self.broken = broken
        self.calls = calls
        self.errors = errors

    def get(self, name: str) -> Any:
        return Faulty(self._given.get(name), self)

    def of(self, directory: str) -> Any:
        return Faulty(self._given.of(directory), self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)


@pytest.fixture
async def faulty(scratch):
    broken: set[str] = set()
    calls: list[str] = []
    errors: dict[str, Exception] = {}
    node = SupervisedNode(
        scratch / "node", runtimes=lambda given: FaultyRuntimes(given, broken, calls, errors)
    )
    await node.open()
    yield node
    broken.clear()
    await node.clear()


def tracebacks(logged: list[Any]) -> list[Any]:
    return [each for each in logged if each["event"] == "supervision.failed" and "exc_info" in each]


@pytest.mark.system
@pytest.mark.trap("T97")
async def test_a_start_that_raises_has_failed_after_three_tries_with_a_reason(faulty):
    runtimes = faulty.runtime.runtimes
    runtimes.broken |= {"start"}
    with structlog.testing.capture_logs() as logged:
        ack = await faulty.start("one", workloads.silent())
        run = await faulty.settled("one")
    assert runtimes.calls == ["start"] * 3
    assert (ack.accepted, ack.error_code, ack.failure_disposition) == (False, "INTERNAL", TRANSIENT)
    assert "LookupError" in ack.error_message
    assert SECRET_WORD not in ack.error_message
    assert (run.outcome.outcome, run.state) == ("start_failed", "CRASHED")
    assert len(tracebacks(logged)) == 1
    assert (await faulty.told("one"))[-1] == "CRASHED:0"
    runtimes.broken.clear()
    assert (await faulty.start("one", workloads.silent(), incarnation=FIRST + 1024)).accepted


@pytest.mark.trap("T97")
async def test_the_time_of_a_start_covers_its_faults(faulty):
    runtimes = faulty.runtime.runtimes
    runtimes.broken |= {"start"}
    ack = await faulty.begin("one", base_plan(workloads.silent(), startup_timeout_seconds=1))
    assert ack.error_code == "INTERNAL"
    assert len(runtimes.calls) < 3


@pytest.mark.system
@pytest.mark.trap("T97")
async def test_what_was_executed_and_never_ready_is_ended_with_the_reason(faulty):
    runtimes = faulty.runtime.runtimes
    runtimes.broken |= {"wait_exit"}
    plan = base_plan(workloads.silent(), probes=(ProbeSpec(kind=ProbeKind.WORKLOAD),))
    assert (await faulty.begin("one", plan)).accepted
    pid = faulty.run("one").pid
    run = await faulty.settled("one")
    assert len(runtimes.calls) == 3
    assert (run.state, run.outcome.exit.signal) == ("CRASHED", 9)
    assert "LookupError" in run.outcome.reason
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.system
@pytest.mark.trap("T97")
async def test_what_was_ready_runs_on_and_says_that_it_is_not_supervised(faulty):
    runtimes = faulty.runtime.runtimes
    assert (await faulty.start("one", workloads.silent())).accepted
    pid = (await faulty.until("one", "RUNNING")).pid
    await faulty.close()
    runtimes.broken |= {"wait_exit"}
    with structlog.testing.capture_logs() as logged:
        await faulty.open()
        await eventually(lambda: "supervision failed" in faulty.run("one").reason)
    assert (faulty.run("one").state, faulty.run("one").pid) == ("RUNNING", pid)
    assert len(tracebacks(logged)) == 1
    runtimes.broken.clear()
    await faulty.stop("one")
    assert (await faulty.settled("one")).state == "STOPPED"


NO_ANSWER = [OSError(errno.ENAMETOOLONG, SECRET_WORD), LookupError(SECRET_WORD), ABSENT]


@pytest.mark.system
@pytest.mark.trap("T97")
@pytest.mark.parametrize("error", NO_ANSWER, ids=lambda each: type(each).__name__)
async def test_a_start_that_raises_has_failed_though_nobody_can_say_what_came_of_it(faulty, error):
    runtimes = faulty.runtime.runtimes
    runtimes.broken |= {"start", "adopt"}
    runtimes.errors["adopt"] = error
    ack = await faulty.start("one", workloads.silent())
    run = await faulty.settled("one")
    assert runtimes.calls == ["start", "adopt", "adopt", "adopt"]
    assert (ack.accepted, ack.error_code, ack.failure_disposition) == (False, "INTERNAL", TRANSIENT)
    assert SECRET_WORD not in ack.error_message
    assert (run.outcome.outcome, run.state) == ("start_failed", "CRASHED")


@pytest.mark.trap("T97")
async def test_a_stop_ends_a_start_that_raised_while_nobody_can_say_what_came_of_it(faulty):
    runtimes = faulty.runtime.runtimes
    runtimes.broken |= {"start", "adopt"}
    starting = asyncio.create_task(faulty.start("one", workloads.silent()))
    await eventually(lambda: "adopt" in runtimes.calls)
    assert (await faulty.stop("one")).accepted
    run = await faulty.settled("one")
    assert not (await starting).accepted
    assert (run.outcome.outcome, run.state) == ("never_started", "STOPPED")
    assert runtimes.calls.count("adopt") <= 2


@pytest.mark.system
@pytest.mark.trap("T97")
@pytest.mark.parametrize("error", [ABSENT, LookupError(SECRET_WORD)], ids=["ours", "not ours"])
async def test_what_may_be_alive_is_looked_for_until_its_runtime_can_say(faulty, error):
    runtimes = faulty.runtime.runtimes
    assert (await faulty.start("one", workloads.silent())).accepted
    pid = (await faulty.until("one", "RUNNING")).pid
    await faulty.close()
    runtimes.broken |= {"adopt"}
    runtimes.errors["adopt"] = error
    with structlog.testing.capture_logs() as logged:
        await faulty.open()
        await eventually(lambda: len(runtimes.calls) >= 5)
    assert "nobody can say whether it runs" in faulty.run("one").reason
    assert ("which this daemon does not have" in faulty.run("one").reason) == (error is ABSENT)
    assert not faulty.run("one").ended
    assert len(tracebacks(logged)) == (error is not ABSENT)
    told = [
        each.instance_status.reason for each in await faulty.reports() if each.HasField("instance_status")
    ]
    assert sum("nobody can say" in each for each in told) == 1
    stopping = asyncio.create_task(faulty.stop("one"))
    runtimes.broken.clear()
    assert (await stopping).accepted
    run = await faulty.settled("one")
    assert (run.state, run.outcome.pid) == ("STOPPED", pid)


async def test_a_workload_that_was_started_before_the_fault_is_supervised(faulty):
    runtimes = faulty.runtime.runtimes
    runtimes.broken |= {"start", "after"}
    assert (await faulty.start("one", workloads.silent())).accepted
    await faulty.until("one", "RUNNING")
    assert runtimes.calls == ["start"]
    assert (await faulty.stop("one", force=True)).accepted
    assert (await faulty.settled("one")).state == "STOPPED"


@pytest.mark.trap("T97")
@pytest.mark.parametrize(
    "word", ["java -Xmx10G -jar paper.jar nogui " + "x" * 250, "/" + "y" * 300, "z/" * 2500]
)
async def test_a_first_word_that_no_path_can_have_is_a_command_not_found(node, word):
    ack = await node.start("one", [word])
    assert (ack.error_code, ack.failure_disposition) == ("COMMAND_NOT_FOUND", PERMANENT)
    assert len(ack.error_message) < 1000
    if " " in word:
        assert "words of their own" in ack.error_message


@pytest.mark.trap("T91")
async def test_arguments_that_stand_in_the_first_word_are_not_repeated_in_the_reason(node):
    ack = await node.start("one", ["java -Dpassword=hunter2 -jar paper.jar"])
    assert ack.error_code == "COMMAND_NOT_FOUND"
    assert "command 'java…' was not found" in ack.error_message
    assert "hunter2" not in ack.error_message
