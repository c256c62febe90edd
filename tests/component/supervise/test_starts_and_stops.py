"""Starting, answering and stopping, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import pwd
import signal

import pytest
from supervised_node import FIRST, SupervisedNode, base_plan, plan_frame, start_frame, with_settings

from corral.domain.groups.plans import PlanProbe
from corral.domain.groups.probes import ProbeKind
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import InstanceState, StopRung

RUNNING = InstanceState.INSTANCE_STATE_RUNNING
TRANSIENT, PERMANENT = 2, 1
TELLING_ITS_USER = workloads.shell("echo uid $(id -u); exec sleep 3600")


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


async def test_a_start_is_acknowledged_with_its_process_and_told_state_by_state(node):
    ack = await node.start("one", workloads.reading_commands())
    assert ack.accepted
    assert alive(ack.pid)
    assert ack.incarnation == FIRST
    await node.until("one", "RUNNING")
    assert await node.told("one") == ["PREPARING:0", "STARTING:0", "RUNNING:0"]


async def test_a_stop_walks_the_ladder_and_says_which_rung_worked(node):
    ack = await node.start("one", workloads.reading_commands())
    await node.says("one", "up")
    answer = await node.stop("one", incarnation=FIRST)
    assert answer.accepted
    run = await node.settled("one")
    assert not alive(ack.pid)
    assert (run.state, run.outcome.rung, run.outcome.outcome) == ("STOPPED", "command stop", "stopped")
    assert (await node.told("one"))[-2:] == ["STOPPING:0", "STOPPED:0"]
    status = await node.last_status("one")
    assert (status.exit.known, status.exit.code, status.exit.rung) == (True, 0, "command stop")


async def test_what_does_not_hear_the_command_gets_the_signal(node):
    await node.start("one", workloads.not_reading())
    await node.says("one", "up")
    await node.stop("one")
    run = await node.settled("one")
    assert (run.state, run.outcome.rung, run.outcome.exit.signal) == ("STOPPED", "SIGTERM", signal.SIGTERM)


async def test_what_hears_nothing_is_killed_and_the_outcome_says_so(node):
    await node.start("one", workloads.ignoring_signals())
    await node.says("one", "up")
    await node.stop("one")
    run = await node.settled("one")
    assert (run.outcome.outcome, run.outcome.rung, run.outcome.exit.signal) == ("killed", "kill", 9)


async def test_a_kill_does_not_wait_for_the_ladder_it_overtakes(node):
    ladder = [StopRung(command="stop", wait_ms=3_600_000)]
    await node.start("one", workloads.slow_stopper(3600), stop_ladder=ladder)
    await node.says("one", "up")
    await node.stop("one")
    await node.says("one", "stopping")
    await node.stop("one", force=True)
    run = await node.settled("one")
    assert (run.state, run.outcome.rung) == ("STOPPED", "kill")


async def test_a_stop_ends_with_the_process_and_not_with_the_timer(node):
    ladder = [StopRung(command="stop", wait_ms=3_600_000)]
    await node.start("one", workloads.reading_commands(code=7), stop_ladder=ladder)
    await node.says("one", "up")
    await node.stop("one")
    run = await node.settled("one")
    assert (run.outcome.exit.code, run.outcome.rung) == (7, "command stop")


@pytest.mark.trap("T19")
@pytest.mark.parametrize(("deaf", "force"), [(False, False), (True, True)], ids=["stop", "kill"])
async def test_stopped_is_said_only_when_no_descendant_is_left(node, deaf, force):
    await node.start("one", workloads.double_forking(deaf=deaf))
    await node.says("one", "grandchild")
    grandchild = int(node.console("one").split()[1])
    assert alive(grandchild)
    await node.stop("one", force=force)
    await eventually(lambda: node.run("one").ended)
    assert not alive(grandchild)
    await node.settled("one")


@pytest.mark.trap("T59")
async def test_a_frozen_instance_is_thawed_and_then_stopped_gracefully(node):
    if not node.runtime.runtime.capabilities().freeze:
        pytest.skip("this machine has no control groups that can freeze")
    await node.start("one", workloads.reading_commands())
    await node.says("one", "up")
    await node.runtime.runtime.set_frozen(node.run("one").handle, True)
    await node.stop("one")
    run = await node.settled("one")
    assert (run.outcome.rung, run.outcome.exit.code) == ("command stop", 0)


@pytest.mark.trap("T21")
async def test_a_thousand_starts_of_one_id_make_one_process(node):
    frame = start_frame("one", workloads.silent())
    for _ in range(500):
        node.give(frame)
    for later in range(1, 501):
        node.give(start_frame("one", workloads.silent(), incarnation=FIRST + 1024 * later))
    await node.until("one", "RUNNING")
    assert len(node.runtime.cgroups.pids(f"one.{FIRST}")) == 1
    assert [path.name for path in (node.data / "runs" / "one").iterdir()] == [str(FIRST)]
    acks = [answer.start_instance_ack for answer in node.answers]
    assert len(acks) == 1000
    assert {ack.error_code for ack in acks if not ack.accepted} == {"CONFLICT"}
    assert all(ack.failure_disposition == TRANSIENT for ack in acks if not ack.accepted)


async def test_a_repeated_start_is_answered_with_the_state_as_it_is(node):
    first = await node.start("one", workloads.silent())
    await node.until("one", "RUNNING")
    again = await node.start("one", workloads.silent())
    assert (again.accepted, again.pid, again.state) == (True, first.pid, RUNNING)


@pytest.mark.trap("T12")
@pytest.mark.parametrize("force", [False, True], ids=["stop", "kill"])
async def test_a_stop_during_the_preparation_stops_it_and_says_so(node, force):
    node.cache.shut = asyncio.Event()
    plan = base_plan(workloads.silent(), templates=(node.cache.template("base", {"a": b"a"}),))
    node.give(plan_frame("one", plan))
    await node.cache.reached.wait()
    answer = await node.stop("one", force=force)
    run = await node.settled("one")
    assert answer.accepted
    assert node.cache.uses == 0
    assert (run.state, run.outcome.outcome) == ("STOPPED", "never_started")
    assert await node.told("one") == ["PREPARING:0", "STOPPING:0", "STOPPED:0"]
    ack = next(a.start_instance_ack for a in node.answers if a.HasField("start_instance_ack"))
    assert (ack.accepted, ack.error_code) == (False, "START_INTERRUPTED")
    again = await node.begin("one", plan)
    assert again.error_code == "START_INTERRUPTED"


async def test_a_start_that_never_ends_is_given_up_at_its_timeout(node):
    node.cache.shut = asyncio.Event()
    template = node.cache.template("base", {"a": b"a"})
    plan = base_plan(workloads.silent(), templates=(template,), startup_timeout_seconds=1)
    ack = await node.begin("one", plan)
    assert (ack.accepted, ack.error_code, ack.failure_disposition) == (False, "STARTUP_TIMEOUT", TRANSIENT)
    assert ack.stage == 2
    assert "TEMPLATE_APPLY" in ack.error_message


async def test_a_program_that_is_not_there_is_refused_for_good_and_remembered(node):
    ack = await node.start("one", ["/no/such/program"])
    assert (ack.accepted, ack.error_code, ack.failure_disposition) == (False, "COMMAND_NOT_FOUND", PERMANENT)
    assert ack.stage == 8
    assert await node.told("one") == ["PREPARING:0", "CRASHED:0"]
    assert (await node.last_status("one")).exit.outcome == "start_failed"
    again = await node.start("one", ["/no/such/program"])
    assert (again.error_code, again.error_message) == (ack.error_code, ack.error_message)
    await node.reopen()
    later = await node.start("one", ["/no/such/program"])
    assert (later.error_code, later.error_message) == (ack.error_code, ack.error_message)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (start_frame("", ["true"]), "MISSING_FIELD"),
        (start_frame("one", []), "MISSING_FIELD"),
        (start_frame("one", ["true"], runtime="teleport"), "INVALID_FIELD"),
        (start_frame("../one", ["true"]), "INVALID_FIELD"),
        (start_frame("one", ["true"], env={"LD_PRELOAD": "x"}), "INVALID_FIELD"),
        (start_frame("one", ["true"], env={"CORRAL_X": "x"}), "INVALID_FIELD"),
        (start_frame("one", ["true"], memory_mb=16_000_000), "NO_CAPACITY"),
    ],
    ids=["id", "command", "runtime", "name", "preload", "reserved", "memory"],
)
async def test_an_order_that_makes_no_sense_is_refused_for_good(node, frame, code):
    ack = await node.answer(frame, "start_instance_ack")
    assert (ack.accepted, ack.error_code, ack.failure_disposition) == (False, code, PERMANENT)
    assert not list((node.data / "running").iterdir())


@pytest.mark.trap("T49")
async def test_orders_for_another_run_do_nothing_and_are_answered_with_the_present_state(node):
    later = FIRST + 1024
    ack = await node.start("one", workloads.reading_commands(), incarnation=later)
    await node.until("one", "RUNNING")
    for wrong in (FIRST, later + 1, later + 1024):
        stopped = await node.stop("one", incarnation=wrong, force=True)
        assert (stopped.accepted, stopped.error_code) == (False, "STALE_INCARNATION")
        assert (stopped.incarnation, stopped.state) == (later, RUNNING)
        said = await node.command("one", "stop", incarnation=wrong)
        assert (said.accepted, said.error_code) == (False, "STALE_INCARNATION")
    started = await node.start("one", workloads.silent(), incarnation=FIRST)
    assert (started.accepted, started.error_code, started.incarnation) == (False, "STALE_INCARNATION", later)
    assert alive(ack.pid)
    assert node.run("one").state == "RUNNING"


async def test_a_stop_of_what_is_not_there_says_so(node):
    answer = await node.stop("nobody", incarnation=FIRST)
    assert (answer.accepted, answer.error_code) == (False, "NOT_FOUND")


async def test_commands_arrive_in_order_and_each_is_answered(node):
    await node.start("one", workloads.reading_commands())
    await node.says("one", "up")
    for number in range(50):
        ack = await node.command("one", f"say {number}", request=f"r{number}")
        assert (ack.accepted, ack.request_id) == (True, f"r{number}")
    await node.says("one", "got say 49")
    said = [line for line in node.console("one").splitlines() if line.startswith("got")]
    assert said == [f"got say {number}" for number in range(50)]


async def test_a_command_to_what_does_not_run_is_refused(node):
    await node.start("one", workloads.crashing(code=0))
    await node.settled("one")
    ack = await node.command("one", "hello")
    assert (ack.accepted, ack.error_code) == (False, "NOT_RUNNING")


async def test_an_instance_that_is_too_old_is_stopped_with_that_reason(node):
    await node.start("one", workloads.reading_commands(), max_lifetime_seconds=1)
    run = await node.settled("one")
    assert (run.state, run.outcome.rung) == ("STOPPED", "command stop")
    assert "maximum lifetime" in run.outcome.reason


async def test_what_is_not_ready_in_time_is_ended_as_a_crash(node):
    probes = (PlanProbe(kind=ProbeKind.LOG, pattern="never"),)
    plan = base_plan(workloads.reading_commands(), probes=probes, startup_timeout_seconds=1)
    await node.begin("one", plan)
    run = await node.settled("one")
    assert (run.state, run.outcome.crash_class) == ("CRASHED", "never_ready")


async def test_a_workload_finds_its_world_and_nothing_of_ours(node):
    os.environ["CORRAL_SECRET_OF_THE_DAEMON"] = "x"
    try:
        await node.start(
            "one",
            (*workloads.describing_itself(), "%INSTANCE_ID%", "%UNKNOWN%"),
            env={"GREETING": "hello %GROUP% %COLOUR% on %NODE_ADDRESS%"},
            resolved_variables={"COLOUR": "red"},
            plugin_token="secret-token",
            api_url="http://controller:8480",
        )
        await node.says("one", "}")
    finally:
        del os.environ["CORRAL_SECRET_OF_THE_DAEMON"]
    environ = json.loads(node.console("one"))["environ"]
    assert environ["GREETING"] == "hello test red on node-1.example"
    assert environ["CORRAL_INSTANCE_TOKEN"] == "secret-token"
    assert environ["CORRAL_INSTANCE_ID"] == "one"
    assert environ["CORRAL_GROUP"] == "test"
    assert environ["CORRAL_NODE_ID"] == "node-1"
    assert environ["CORRAL_API_URL"] == "http://controller:8480"
    assert environ["CORRAL_RUN"] == f"one.{FIRST}"
    assert environ["PYTHONUNBUFFERED"] == "1"
    assert "CORRAL_SECRET_OF_THE_DAEMON" not in environ
    command = pathlib.Path(f"/proc/{node.run('one').pid}/cmdline").read_bytes().split(b"\0")
    assert command[-3:-1] == [b"one", b"%UNKNOWN%"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_without_its_user_a_start_is_refused_with_what_makes_it(scratch):
    node = SupervisedNode(scratch / "node", settings=with_settings(development=False, run_as="corral-nobody"))
    await node.open()
    try:
        ack = await node.start("one", workloads.silent(), isolate="shared")
        assert (ack.error_code, ack.failure_disposition) == ("RUN_AS_REFUSED", PERMANENT)
        assert "useradd" in ack.error_message
        ack = await node.start("two", workloads.silent(), run_as="root")
        assert ack.error_code == "RUN_AS_REFUSED"
        assert "allow_root" in ack.error_message
    finally:
        await node.clear()


@pytest.mark.trap("T63")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_nobody_can_name_the_user_of_an_isolated_instance(scratch):
    """What a group that reads its neighbour's files and token would have to say."""
    settings = with_settings(development=False, run_as="nobody", first_uid=210_000, last_uid=210_010)
    node = SupervisedNode(scratch / "node", settings=settings)
    scratch.chmod(0o711)
    await node.open()
    try:
        ack = await node.start("one", TELLING_ITS_USER, ticket="t")
        assert ack.accepted, ack.error_message
        await node.says("one", "uid 210000")
        for id, user in (("two", "210000"), ("three", "games"), ("four", "9" * 5000), ("five", "4294967295")):
            ack = await node.start(id, workloads.silent(), run_as=user)
            assert (ack.error_code, ack.failure_disposition) == ("RUN_AS_REFUSED", PERMANENT)
            assert (await node.settled(id)).outcome.failed_start.stage == "VALIDATION"
    finally:
        await node.clear()


SPY = r"""
read -r pid directory
for path in /proc/$pid/environ /proc/$pid/cwd/world "$directory" "$directory/world"; do
  cat "$path" >/dev/null 2>&1 && echo "read $path"
  ls "$path/" >/dev/null 2>&1 && echo "listed $path"
  (echo x >> "$path") 2>/dev/null && echo "wrote $path"
done
kill -0 $pid 2>/dev/null && echo "may signal"
ls /proc/$pid/fd >/dev/null 2>&1 && echo "looked into it"
echo spied; exec sleep 3600
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_under_a_controller_from_before_tickets_instances_share_their_user_as_before(scratch):
    """It says nothing where it means `shared`: a world that is there has to stay readable for its server."""
    settings = with_settings(development=False, run_as="nobody", first_uid=210_000, last_uid=210_010)
    node = SupervisedNode(scratch / "node", settings=settings)
    scratch.chmod(0o711)
    await node.open()
    try:
        for id, ticket, user in (("old", "", pwd.getpwnam("nobody").pw_uid), ("new", "t", 210_000)):
            ack = await node.start(id, TELLING_ITS_USER, ticket=ticket)
            assert ack.accepted, ack.error_message
            await node.says(id, f"uid {user}\n")
    finally:
        await node.clear()


@pytest.mark.trap("T63")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_by_default_an_instance_can_do_nothing_to_its_neighbour(scratch):
    settings = with_settings(development=False, run_as="nobody")
    node = SupervisedNode(scratch / "node", settings=settings)
    scratch.chmod(0o711)
    await node.open()
    try:
        victim = workloads.shell("echo precious > world; chmod 644 world; echo up; exec sleep 3600")
        secrets = {"env": {"PASSWORD": "hunter2"}, "plugin_token": "tok"}
        assert (await node.start("one", victim, ticket="t", **secrets)).accepted
        await node.says("one", "up")
        for id, isolate in (("two", ""), ("three", "shared")):
            assert (await node.start(id, workloads.shell(SPY), isolate=isolate, ticket="t")).accepted
            await node.command(id, f"{node.run('one').pid} {node.data / 'running' / 'one'}")
            await node.says(id, "spied")
            assert node.console(id) == "spied\n"
    finally:
        await node.clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_isolated_instances_have_users_of_their_own_that_stay_the_same(scratch):
    settings = with_settings(development=False, first_uid=210_000, last_uid=210_010)
    node = SupervisedNode(scratch / "node", settings=settings)
    scratch.chmod(0o711)
    await node.open()
    try:
        for id in ("one", "two"):
            ack = await node.start(id, TELLING_ITS_USER, isolate="uid", static_instance=id == "two")
            assert ack.accepted, ack.error_message
            await node.says(id, "uid")
        users = {id: node.console(id) for id in ("one", "two")}
        assert users == {"one": "uid 210000\n", "two": "uid 210001\n"}
        assert (node.data / "static" / "two").stat().st_uid == 210_001
        for id in ("one", "two"):
            await node.stop(id, force=True)
            await node.settled(id)
        await node.supervision.housekeeping.tidy()
        await node.reopen()
        await node.start(
            "two", TELLING_ITS_USER, isolate="uid", incarnation=FIRST + 1024, static_instance=True
        )
        await node.says("two", users["two"])
        await node.start("one", TELLING_ITS_USER, isolate="uid", incarnation=FIRST + 1024)
        await node.says("one", "uid 210002")  # nothing of it was left: it is as good as another instance
    finally:
        await node.clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("static", [False, True])
async def test_a_restart_by_the_node_owns_its_directory_though_it_was_anothers(scratch, static):
    settings = with_settings(development=False, first_uid=210_000, last_uid=210_010)
    node = SupervisedNode(scratch / "node", settings=settings)
    scratch.chmod(0o711)
    await node.open()
    try:
        script = "test -e mark && echo kept; echo owner $(stat -c %u .); touch mark; read go; exit 3"
        ack = await node.start(
            "one", workloads.shell(script), isolate="uid", static_instance=static, attempts=1
        )
        assert ack.accepted, ack.error_message
        await node.says("one", "owner 210000")
        directory = node.data / ("static" if static else "running") / "one"
        await eventually((directory / "mark").exists)
        for path in (directory / "mark", directory):
            os.chown(path, 65_533, 65_533)
        await node.command("one", "go")
        await node.until("one", "RUNNING", incarnation=FIRST + 1)
        await node.says("one", "owner 210000")
        assert ("kept" in node.console("one")) is static
        assert directory.stat().st_uid == 210_000
    finally:
        await node.clear()
