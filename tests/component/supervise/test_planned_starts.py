"""Starts by a plan: files, variables, secrets, Java, readiness, and what a failure says."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import pathlib
import tarfile

import msgspec
import pytest
from supervised_node import FIRST, SupervisedNode, base_plan, plan_frame

from corral.daemon.orders.save_orders import SaveOrders
from corral.domain.groups.group import PatchSpec, RestartSpec
from corral.domain.groups.plans import PlanJvm
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.ids import first_incarnation
from corral.domain.spec import VariableSpec, VariableType
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.daemon_config import CacheSection, DaemonConfig, DiskSection, JavaSection, NodeSection
from corral.system.entropy import SystemEntropy
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.features import PeerSupport
from corral.wire.v1.instance_pb2 import SaveFiles, StartPreparationStage, WorkloadReport
from corral.wire.v1.link_pb2 import ControllerMessage

TRANSIENT, PERMANENT = 2, 1
SECOND = first_incarnation(2)


def stage(ack) -> str:
    return StartPreparationStage.Name(ack.stage).removeprefix("START_PREPARATION_STAGE_")


async def test_a_workload_finds_the_files_of_its_plan(node):
    template = node.cache.template(
        "base", {"run.sh": (b"cat conf.txt; exec sleep 3600\n", 0o755), "conf.txt": b"port %PORT%\n"}
    )
    patch = PatchSpec(file="conf.txt", path="port", op="regex", value="the port is")
    plan = base_plan(("sh", "run.sh"), templates=(template,), substitute=("*.txt",), patches=(patch,))
    ack = await node.begin("one", plan, port=40_123)
    assert ack.accepted, ack.error_message
    await node.says("one", "the port is 40123")


async def test_files_are_prepared_while_the_intent_is_written_and_nothing_else_is_made_before_it(node):
    template = node.cache.template("base", {"run.sh": (b"echo begun; exec sleep 3600\n", 0o755)})
    node.give(plan_frame("one", base_plan(("sh", "run.sh"), templates=(template,))))
    run = node.run("one")
    await run.stop.writing.acquire()  # without a pause: the intent waits for it
    staged = node.data / "running" / ".staging" / run.name / "run.sh"
    await eventually(staged.exists)
    assert run.state == "SCHEDULED"
    assert not (node.data / "running" / "one").exists()
    assert not run.files.directory.exists()
    assert await node.told("one") == []
    run.stop.writing.release()
    await node.says("one", "begun")


async def test_a_daemon_that_ends_does_not_wait_for_an_intent(node):
    template = node.cache.template("base", {"run.sh": (b"exec sleep 3600\n", 0o755)})
    node.give(plan_frame("one", base_plan(("sh", "run.sh"), templates=(template,))))
    run = node.run("one")
    await run.stop.writing.acquire()
    await eventually((node.data / "running" / ".staging" / run.name / "run.sh").exists)
    await asyncio.wait_for(node.reopen(), 30)
    assert node.supervision.supervisor.instances.find("one") is None
    assert not (node.data / "running" / "one").exists()


async def test_a_start_whose_intent_cannot_be_written_leaves_nothing(node):
    (node.data / "runs").mkdir(exist_ok=True)
    (node.data / "runs" / "one").write_bytes(b"in the way")
    template = node.cache.template("base", {"run.sh": (b"exec sleep 3600\n", 0o755)})
    ack = await node.begin("one", base_plan(("sh", "run.sh"), templates=(template,)))
    assert (ack.accepted, ack.error_code, stage(ack)) == (False, "DISK_FULL", "VALIDATION")
    assert not (node.data / "running" / "one").exists()
    assert list((node.data / "running" / ".staging").iterdir()) == []


async def test_a_plan_whose_hash_is_another_is_refused_for_good(node):
    frame = plan_frame("one", base_plan(workloads.silent()))
    frame.start_instance.composition_plan.canonical_json += b" "
    ack = await node.answer(frame, "start_instance_ack")
    assert (ack.error_code, ack.failure_disposition, stage(ack)) == ("PLAN_MISMATCH", PERMANENT, "VALIDATION")
    assert not (node.data / "runs" / "one").exists()
    other = plan_frame("one", base_plan(workloads.silent()))
    other.start_instance.plan_hash = "0" * 64
    assert (await node.answer(other, "start_instance_ack")).error_code == "PLAN_MISMATCH"


async def test_what_the_plan_says_counts_and_not_the_fields_beside_it(node):
    plan = base_plan(workloads.shell("echo planned; exec sleep 3600"))
    ack = await node.begin("one", plan, command=["/bin/false"], env={"LD_PRELOAD": "x"})
    assert ack.accepted, ack.error_message
    await node.says("one", "planned")


@pytest.mark.trap("T22")
async def test_a_failure_names_its_stage_its_code_and_whether_it_lasts(node):
    node.cache.broken = Retryable(Code.TEMPLATE_UNAVAILABLE, "no controller", retry_after=7.0)
    template = node.cache.template("base", {"a": b"a"})
    ack = await node.begin("one", base_plan(workloads.silent(), templates=(template,)))
    assert (ack.error_code, ack.failure_disposition, ack.retry_after_seconds, stage(ack)) == (
        "TEMPLATE_UNAVAILABLE",
        TRANSIENT,
        7,
        "TEMPLATE_APPLY",
    )
    node.cache.broken = None
    artifact = msgspec.structs.replace(node.cache.artifact("x.jar", b"x"), sha256="1" * 64)
    ack = await node.begin("two", base_plan(workloads.silent(), artifact=artifact))
    assert (ack.error_code, ack.failure_disposition, stage(ack)) == (
        "CACHE_DOWNLOAD_FAILED",
        PERMANENT,
        "RUNTIME_PROVISION",
    )
    assert len(node.cache.asked) == 2, "a node does not try again by itself"
    assert not [path for path in (node.data / "running").iterdir() if not path.name.startswith(".")]


async def test_a_fault_of_our_own_in_a_preparation_is_a_failed_start_and_told_once(node):
    node.cache.broken = RuntimeError("pw=hidden")
    template = node.cache.template("base", {"a": b"a"})
    ack = await node.begin("one", base_plan(workloads.silent(), templates=(template,)))
    assert (ack.error_code, ack.failure_disposition, stage(ack)) == ("INTERNAL", TRANSIENT, "TEMPLATE_APPLY")
    assert "RuntimeError" in ack.error_message
    assert "hidden" not in ack.error_message, "nobody knows what the text of a fault holds"
    run = await node.settled("one")
    assert (run.state, run.outcome.outcome) == ("CRASHED", "start_failed")
    assert await node.told("one") == ["PREPARING:0", "CRASHED:0"]


async def test_a_restart_by_the_node_finds_its_directory_as_it_was(scratch):
    config = DaemonConfig(cache=CacheSection(warm_trees=0))  # trees built ahead would ask the cache, too
    node = await SupervisedNode(scratch / "node", config=config).open()
    try:
        template = node.cache.template("base", {"a": b"1"})
        script = "cat a; echo more >> a; test $(wc -l < a) = 2 && exec sleep 3600; exit 1"
        plan = base_plan(workloads.shell(script), templates=(template,), restart=RestartSpec(attempts=1))
        await node.begin("one", plan)
        await node.until("one", "RUNNING", incarnation=FIRST + 1)
        await eventually(lambda: (node.data / "running" / "one" / "a").read_text() == "1more\nmore\n")
        assert node.cache.asked == ["base"]
    finally:
        await node.clear()


async def test_a_restart_whose_directory_is_gone_gets_it_made_again(node):
    template = node.cache.template("base", {"a": b"again\n"})
    plan = base_plan(
        workloads.shell("cat a; read x; rm -rf ../one; exit 1"),
        templates=(template,),
        restart=RestartSpec(attempts=1),
    )
    await node.begin("one", plan)
    await node.says("one", "again")
    await node.command("one", "go")
    await node.until("one", "RUNNING", incarnation=FIRST + 1)
    await node.says("one", "again")


async def test_secrets_reach_the_workload_and_nothing_else(scratch):
    node = await SupervisedNode(scratch / "node").open()
    try:
        (node.data / "secrets" / "db").mkdir(parents=True)
        (node.data / "secrets" / "db" / "password").write_text("hunter2\n")
        template = node.cache.template("base", {"db.conf": b"password=%DB%\n"})
        plan = base_plan(
            workloads.shell('cat db.conf; echo "env $DB_PASSWORD"; exec sleep 3600'),
            templates=(template,),
            substitute=("db.conf",),
            env={"DB_PASSWORD": "%DB%"},
            variables={"DB": "file://db/password"},
            variable_types={"DB": VariableSpec(type=VariableType.SECRET)},
        )
        ack = await node.begin("one", plan)
        assert ack.accepted, ack.error_message
        await node.says("one", "env hunter2")
        assert "password=hunter2" in node.console("one")
        for path in node.run("one").files.directory.iterdir():
            if path.is_file():
                assert b"hunter2" not in path.read_bytes(), path
        for message in (*await node.reports(), *node.sent, *node.answers):
            assert b"hunter2" not in message.SerializeToString()
        missing = msgspec.structs.replace(plan, variables={"DB": "file://../node.key"})
        ack = await node.begin("two", missing)
        assert not ack.accepted
        missing = msgspec.structs.replace(plan, variables={"DB": "file://nowhere"})
        ack = await node.begin("three", missing)
        assert (ack.error_code, ack.failure_disposition) == ("SECRET_UNAVAILABLE", PERMANENT)
    finally:
        await node.clear()


@pytest.mark.trap("T77")
async def test_a_secret_in_the_command_line_of_a_plan_is_refused_on_the_node(node):
    """As a controller of an earlier version, or a stored plan, would have it."""
    (node.data / "secrets").mkdir(exist_ok=True)
    (node.data / "secrets" / "pw").write_text("TOPSECRETVALUE")
    secret = {
        "variables": {"PW": "file://pw"},
        "variable_types": {"PW": VariableSpec(type=VariableType.SECRET)},
    }
    ack = await node.begin("one", base_plan(("/nonexistent/%PW%",), **secret))
    assert (ack.error_code, ack.failure_disposition) == ("SECRET_EXPOSED", PERMANENT)
    assert stage(ack) == "VALIDATION"
    ack = await node.begin("two", base_plan(("sleep",), args=("%PW%",), **secret))
    assert ack.error_code == "SECRET_EXPOSED"


@pytest.mark.trap("T77")
@pytest.mark.parametrize("restarted", [False, True], ids=["same daemon", "next daemon"])
async def test_last_words_that_hold_a_secret_leave_the_node_without_it(node, restarted):
    (node.data / "secrets").mkdir(exist_ok=True)
    (node.data / "secrets" / "pw").write_text("TOPSECRETVALUE")
    plan = base_plan(
        workloads.shell('read go; echo "FATAL login with $PW refused"; exit 3'),
        env={"PW": "%PW%"},
        variables={"PW": "file://pw"},
        variable_types={"PW": VariableSpec(type=VariableType.SECRET)},
    )
    assert (await node.begin("one", plan)).accepted
    await node.until("one", "RUNNING")
    if restarted:
        await node.reopen()
    await node.command("one", "go")
    run = await node.settled("one")
    crash = await node.crash("one")
    assert list(crash.log_tail) == ["FATAL login with %PW% refused"]
    assert "TOPSECRETVALUE" in node.console("one"), "its console is its own"
    for message in (*await node.reports(), *node.sent, *node.answers):
        assert b"TOPSECRETVALUE" not in message.SerializeToString()
    for path in run.files.directory.iterdir():
        assert not path.is_file() or b"TOPSECRETVALUE" not in path.read_bytes(), path


async def test_a_value_that_does_not_fit_its_type_is_refused_on_the_node(node):
    plan = base_plan(
        workloads.silent(),
        variables={"SLOTS": "many"},
        variable_types={"SLOTS": VariableSpec(type=VariableType.INT)},
    )
    ack = await node.begin("one", plan)
    assert (ack.error_code, ack.failure_disposition) == ("VARIABLE_INVALID", PERMANENT)


async def test_in_strict_mode_the_command_may_hold_no_unknown_variable(node):
    ack = await node.begin("one", base_plan(("echo", "%NOBODY%"), strict_variables=True))
    assert (ack.error_code, stage(ack)) == ("VARIABLE_UNRESOLVED", "VARIABLE_SUBSTITUTION")
    assert "%NOBODY%" in ack.error_message


async def test_labels_and_the_address_of_the_group_are_variables(scratch):
    config = DaemonConfig(node=NodeSection(labels={"zone": "attic"}))
    node = await SupervisedNode(scratch / "node", config=config).open()
    try:
        plan = base_plan(
            workloads.shell('echo "$ZONE $WHERE"; exec sleep 3600'),
            env={"ZONE": "%LABEL_ZONE%", "WHERE": "%HOST_ADDRESS%"},
            host_address="%LABEL_ZONE%.example.org",
        )
        await node.begin("one", plan)
        await node.says("one", "attic attic.example.org")
    finally:
        await node.clear()


async def test_the_instance_groups_of_a_group_are_those_of_its_variables_or_its_name(node):
    plan = base_plan(workloads.shell('echo "in $IN"; exec sleep 3600'), env={"IN": "%INSTANCE_GROUPS%"})
    await node.begin("one", msgspec.structs.replace(plan, variables={"INSTANCE_GROUPS": "lobby,hub"}))
    await node.says("one", "in lobby,hub")
    await node.begin("two", plan)
    await node.says("two", f"in {plan.group}")


async def test_java_is_called_with_its_heap_its_arguments_and_the_jar(scratch):
    java = scratch / "java"
    java.write_text('#!/bin/sh\necho "$@"\nexec sleep 3600\n')
    java.chmod(0o755)
    config = DaemonConfig(java=JavaSection(path=str(java)))
    node = await SupervisedNode(scratch / "node", config=config).open()
    try:
        artifact = node.cache.artifact("server.jar", b"jar")
        jvm = PlanJvm(jar="server.jar", args=("-XX:+UseG1GC", "-Dport=%PORT%"), heap_mb=512)
        plan = base_plan((), args=("nogui",), artifact=artifact, jvm=jvm)
        ack = await node.begin("one", plan, port=40_001)
        assert ack.accepted, ack.error_message
        await node.says("one", "-Xms512M -Xmx512M -XX:+UseG1GC -Dport=40001 -jar server.jar nogui")
        java.unlink()
        ack = await node.begin("two", plan)
        assert (ack.error_code, ack.failure_disposition) == ("JAVA_NOT_FOUND", PERMANENT)
    finally:
        await node.clear()


async def test_a_runtime_that_this_node_lacks_is_refused(node):
    ack = await node.begin("one", base_plan(workloads.silent(), runtime="kubernetes"))
    assert (ack.error_code, ack.failure_disposition, stage(ack)) == (
        "RUNTIME_UNAVAILABLE",
        PERMANENT,
        "VALIDATION",
    )


@pytest.mark.parametrize("runtime", ["tmux", "screen"])
async def test_a_run_keeps_its_runtime_when_the_daemon_is_another(node, runtime):
    if runtime not in node.runtime.runtimes.names():
        pytest.skip(f"{runtime} is not installed")
    ack = await node.begin("one", base_plan(workloads.reading_commands(), runtime=runtime))
    assert ack.accepted, ack.error_message
    await node.says("one", "up")
    await node.reopen()
    assert node.run("one").handle.runtime == runtime
    await node.stop("one")
    run = await node.settled("one")
    assert (run.outcome.rung, run.outcome.exit.code) == ("command stop", 0)


async def test_without_room_a_start_is_refused_for_now(scratch):
    config = DaemonConfig(disk=DiskSection(reserve_mb=1 << 29))
    node = await SupervisedNode(scratch / "node", config=config).open()
    try:
        ack = await node.begin("one", base_plan(workloads.silent(), disk_mb=5))
        assert (ack.error_code, ack.failure_disposition, stage(ack)) == ("DISK_FULL", TRANSIENT, "VALIDATION")
        assert ack.retry_after_seconds == 30
    finally:
        await node.clear()


async def test_stages_that_last_are_told_and_short_ones_are_not(node):
    node.cache.shut = asyncio.Event()
    plan = base_plan(workloads.silent(), templates=(node.cache.template("base", {"a": b"a"}),))
    starting = asyncio.create_task(node.begin("one", plan))
    await eventually(lambda: node.sent)
    node.cache.shut.set()
    assert (await starting).accepted
    told = [(m.instance_status.stage, m.instance_status.state) for m in node.sent]
    assert told == [(2, 2)]
    assert all(not m.instance_status.stage for m in await node.reports())


async def trickle(fifos: list[pathlib.Path]) -> None:
    """A byte to every reader now and then: files that never end."""
    writers: dict[pathlib.Path, int] = {}
    try:
        while True:
            for fifo in fifos:
                with contextlib.suppress(OSError):
                    if fifo not in writers:
                        writers[fifo] = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
                    os.write(writers[fifo], b"x")
            await asyncio.sleep(0.01)
    finally:
        for writer in writers.values():
            os.close(writer)


@pytest.mark.trap("T12")
async def test_stops_are_followed_at_once_while_more_is_copied_than_there_are_threads(node, scratch):
    fifos, ids = [], [f"slow-{number}" for number in range(12)]
    for id in ids:
        body = id.encode()
        template = node.cache.template("t", {"endless": body})
        fifo = scratch / "node-shelf" / hashlib.sha256(body).hexdigest()
        fifo.unlink()
        os.mkfifo(fifo)
        fifos.append(fifo)
        node.give(plan_frame(id, base_plan(workloads.silent(), templates=(template,))))
    feeding = asyncio.create_task(trickle(fifos))
    try:
        staging = node.data / "running" / ".staging"
        await eventually(lambda: [*staging.glob("*/endless")] if staging.exists() else None)
        clock = node.supervision.services.clock
        began = clock.boottime()
        await asyncio.gather(*(node.stop(id) for id in ids))
        for id in ids:
            assert (await node.settled(id)).outcome.outcome == "never_started"
        assert clock.boottime() - began < 5.0
        assert not list(staging.iterdir())
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


# readiness


async def test_running_is_said_when_the_console_says_so_and_a_later_daemon_does_not_ask_again(node):
    probe = ProbeSpec(kind=ProbeKind.LOG, pattern=r"Done \(")
    plan = base_plan(workloads.shell("read x; echo 'Done (1 s)'; exec sleep 3600"), probes=(probe,))
    await node.begin("one", plan)
    assert node.run("one").state == "STARTING"
    await node.reopen()
    assert node.run("one").state == "STARTING"
    await node.command("one", "go")
    await node.until("one", "RUNNING")
    await node.reopen()
    assert node.run("one").state == "RUNNING"
    assert (await node.told("one")).count("RUNNING:0") == 1


async def test_what_is_never_ready_is_ended_and_the_reason_names_the_probe(node):
    probe = ProbeSpec(kind=ProbeKind.LOG, pattern="never said")
    plan = base_plan(workloads.reading_commands(), probes=(probe,), startup_timeout_seconds=1)
    await node.begin("one", plan)
    run = await node.settled("one")
    assert (run.state, run.outcome.crash_class) == ("CRASHED", "never_ready")
    assert "never said" in run.outcome.reason


async def test_the_time_to_become_ready_began_with_the_preparation(node):
    node.cache.shut = asyncio.Event()
    probe = ProbeSpec(kind=ProbeKind.WORKLOAD)
    template = node.cache.template("base", {"a": b"a"})
    plan = base_plan(
        workloads.reading_commands(), probes=(probe,), templates=(template,), startup_timeout_seconds=2
    )
    starting = asyncio.create_task(node.begin("one", plan))
    await node.cache.reached.wait()
    clock = node.supervision.services.clock
    began = clock.boottime()
    await eventually(lambda: clock.boottime() - began > 1.2)
    node.cache.shut.set()
    assert (await starting).accepted
    await node.settled("one")
    assert clock.boottime() - began < 3.0


async def test_a_workload_may_say_itself_that_it_is_ready_also_after_a_restart(node):
    plan = base_plan(
        workloads.shell("read x; exit 1"),
        probes=(ProbeSpec(kind=ProbeKind.WORKLOAD),),
        restart=RestartSpec(attempts=1),
    )

    def say(incarnation: int) -> None:
        report = WorkloadReport(instance_id="one", incarnation=incarnation, ready=True)
        node.give(ControllerMessage(workload_report=report))

    await node.begin("one", plan)
    say(SECOND)
    assert node.run("one").state == "STARTING"
    say(FIRST)
    await node.until("one", "RUNNING")
    await node.command("one", "die")
    await node.until("one", "STARTING", incarnation=FIRST + 1)
    say(FIRST)
    await node.until("one", "RUNNING", incarnation=FIRST + 1)


async def test_a_probe_that_can_never_succeed_is_refused_before_anything_starts(node):
    ack = await node.begin("one", base_plan(workloads.silent(), probes=(ProbeSpec(kind=ProbeKind.TCP),)))
    assert (ack.error_code, ack.failure_disposition) == ("INVALID_FIELD", PERMANENT)


@pytest.mark.trap("T76")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives users away")
async def test_first_run_results_are_kept_of_a_user_of_its_own_once_it_has_ended(node, scratch):
    scratch.chmod(0o755)
    artifact = node.cache.artifact("server.jar", b"jar", version="1.21")
    plan = base_plan(workloads.silent(), artifact=artifact, warm_paths=("libraries/",), isolate="uid")
    await node.begin("one", plan)
    run = await node.until("one", "RUNNING")
    owner = (node.data / "running" / "one").stat().st_uid
    assert node.cache.kept == [], "it could still change them"
    await node.stop("one")
    assert (await node.settled("one")).was_ready
    [(key, root, found)] = node.cache.kept
    assert (root, found) == (node.data / "running" / "one", owner)
    assert (key.group, key.user, key.paths, key.version) == (
        run.order.group,
        "isolated",
        ("libraries/",),
        "1.21",
    )
    assert not root.exists(), "it went afterwards"


@pytest.mark.trap("T77")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives users away")
async def test_files_that_hold_secrets_are_no_first_run_results(node, scratch):
    scratch.chmod(0o755)
    (node.data / "secrets").mkdir(exist_ok=True)
    (node.data / "secrets" / "pw").write_text("TOPSECRETVALUE")
    plan = base_plan(
        workloads.silent(),
        artifact=node.cache.artifact("server.jar", b"jar", version="1.21"),
        templates=(node.cache.template("base", {"db.cfg": b"%PW%", "plain": b"x"}),),
        substitute=("**",),
        variables={"PW": "file://pw"},
        variable_types={"PW": VariableSpec(type=VariableType.SECRET)},
        warm_paths=("**",),
        isolate="uid",
    )
    await node.begin("one", plan)
    await node.until("one", "RUNNING")
    (node.data / "secrets" / "pw").write_text("ANOTHERVALUE")
    await node.stop("one")
    await node.settled("one")
    [guard] = node.cache.guards
    for path, body in (("db.cfg", b""), ("own", b"x TOPSECRETVALUE"), ("own", b"ANOTHERVALUE x")):
        with pytest.raises(Rejected) as refused:
            guard.content(path, io.BytesIO(body), len(body))[0].read()
        assert refused.value.code is Code.SECRET_EXPOSED
    assert guard.content("plain", io.BytesIO(b"x"), 1)[0].read() == b"x"


@pytest.mark.trap("T76")
async def test_first_run_results_of_a_shared_user_are_never_kept(node):
    """Another workload of this user may have the directory open, and write to it after the end."""
    artifact = node.cache.artifact("server.jar", b"jar", version="1.21")
    plan = base_plan(workloads.silent(), artifact=artifact, warm_paths=("libraries/",))
    await node.begin("one", plan)
    await node.until("one", "RUNNING")
    await node.stop("one")
    assert (await node.settled("one")).was_ready
    assert node.cache.kept == []


# intents


async def test_the_intent_of_an_earlier_version_is_understood(node):
    await node.begin("one", base_plan(workloads.shell("echo up; exec sleep 3600")))
    await node.says("one", "up")
    await node.close()
    path = node.data / "runs" / "one" / str(FIRST) / "intent.json"
    document = json.loads(path.read_text())
    assert document["version"] == 2
    document["version"] = 1
    for field in ("plan", "probes", "runtime"):
        del document["value"]["order"][field]
    del document["value"]["anew"]
    path.write_text(json.dumps(document))
    await node.open()
    run = node.run("one")
    assert (run.state, run.order.plan, run.order.runtime) == ("RUNNING", None, "process")


async def test_a_preparation_that_a_daemon_left_is_begun_anew_by_the_next(node):
    node.cache.shut = asyncio.Event()
    template = node.cache.template("base", {"a": b"made\n"})
    node.give(plan_frame("one", base_plan(workloads.shell("cat a; exec sleep 3600"), templates=(template,))))
    await node.cache.reached.wait()
    await node.close()
    node.cache.shut = None
    await node.open()
    await node.says("one", "made")


# static directories


@pytest.mark.trap("T75")
async def test_a_start_says_which_files_of_a_static_directory_it_kept(node):
    def planned(body: bytes):
        files = {"motd.txt": body, **{f"many/{number}": body for number in range(30)}}
        return base_plan(workloads.silent(), templates=(node.cache.template("base", files),), static=True)

    await node.begin("one", planned(b"1"))
    await node.until("one", "RUNNING")
    world = node.data / "static" / "one"
    for path in (world / "motd.txt", *(world / "many").iterdir()):
        path.write_bytes(b"mine")
    await node.stop("one", force=True)
    await node.until("one", "STOPPED")
    await node.begin("one", planned(b"2"), incarnation=SECOND)
    await node.until("one", "RUNNING", incarnation=SECOND)
    told = [list(each.instance_status.files_kept) for each in await node.reports()]
    kept = next(files for files in told if files)
    assert kept[0] == "many/0: it was changed since it was laid"
    assert (len(kept), kept[-1]) == (21, "and 11 more")
    assert (world / "motd.txt").read_bytes() == b"mine"


# saving


@pytest.mark.system
@pytest.mark.trap("T26")
async def test_chosen_files_of_an_instance_are_packed_and_no_link_is_followed(node, scratch, orders_of):
    script = "mkdir -p world/region logs; echo w > world/level.dat; echo r > world/region/0; echo l > logs/x; echo up; exec sleep 3600"
    await node.begin("one", base_plan(workloads.shell(script), static=True))
    await node.says("one", "up")
    orders = orders_of(node)
    archive = scratch / "saved.tar.gz"
    await orders.pack(SaveFiles(instance_id="one", paths=["world/"]), archive)
    with tarfile.open(archive) as packed:
        assert packed.getnames() == ["world/level.dat", "world/region/0"]
    directory = node.data / "static" / "one"
    refused = {
        "PATH_REFUSED": lambda: (directory / "world" / "key").symlink_to(node.data / "uids.json"),
        "ARCHIVE_TOO_LARGE": lambda: (
            (directory / "world" / "key").unlink(),
            (directory / "world" / "big").write_bytes(b"x" * 9000),
        ),
    }
    for code, prepare in refused.items():
        prepare()
        with pytest.raises(CorralError) as failed:
            await orders.pack(SaveFiles(instance_id="one", paths=["world/**"], max_bytes=5000), archive)
        assert failed.value.code.name == code
    for paths in (["../x"], ["/etc/*"], []):
        with pytest.raises(CorralError):
            await orders.pack(SaveFiles(instance_id="one", paths=paths), archive)
    (directory / "logs").rename(directory / "logs.old")
    (directory / "logs").symlink_to("/etc")
    with pytest.raises(CorralError) as failed:
        await orders.pack(SaveFiles(instance_id="one", paths=["logs/**"]), archive)
    assert failed.value.code in (Code.NOT_FOUND, Code.PATH_REFUSED)
    os.mkfifo(directory / "world" / "fifo")
    with pytest.raises(CorralError) as failed:
        await orders.pack(SaveFiles(instance_id="one", paths=["world/fifo"]), archive)
    assert failed.value.code is Code.PATH_REFUSED


@pytest.mark.system
@pytest.mark.timeout(60)
async def test_a_file_of_holes_is_refused_before_it_is_read(node, scratch, orders_of):
    script = "mkdir world; truncate -s 1T world/holes; echo up; exec sleep 3600"
    await node.begin("one", base_plan(workloads.shell(script), static=True))
    await node.says("one", "up")
    wanted = SaveFiles(instance_id="one", paths=["world/"], max_bytes=5000)
    with pytest.raises(
        Rejected, match=r"'world/holes' has 1099511627776 bytes: .* more than 5000 bytes"
    ) as failed:
        await orders_of(node).pack(wanted, scratch / "saved.tar.gz")
    assert failed.value.code is Code.ARCHIVE_TOO_LARGE


class _Connected:
    """As much of a connection as an order looks at before it has packed."""

    supports = PeerSupport(bulk=True)


@pytest.mark.timeout(60)
async def test_packing_ends_with_the_connection_that_ordered_it(node, orders_of):
    """In the middle of a file, too: nobody waits for it."""
    script = "mkdir world; truncate -s 1T world/holes; echo up; exec sleep 3600"
    await node.begin("one", base_plan(workloads.shell(script), static=True))
    await node.says("one", "up")
    orders = orders_of(node)
    orders.on_connected(_Connected())
    told: list[object] = []
    before = set(node.data.rglob("*"))

    def archives() -> list[pathlib.Path]:
        return [path for path in node.data.rglob("save*") if path not in before]

    orders.handlers["save_files"](
        told.append, ControllerMessage(save_files=SaveFiles(instance_id="one", paths=["world/"]))
    )
    await eventually(lambda: any(path.stat().st_size for path in archives()))
    orders.on_disconnected()
    await eventually(lambda: not archives())
    await orders.close()
    assert told == []


@pytest.mark.system
@pytest.mark.trap("T77")
@pytest.mark.parametrize("static", [False, True], ids=["running", "static"])
async def test_files_that_hold_secrets_are_saved_with_their_names_or_not_at_all(
    node, scratch, static, orders_of
):
    (node.data / "secrets").mkdir(exist_ok=True)
    (node.data / "secrets" / "pw").write_text("TOPSECRETVALUE")
    template = node.cache.template(
        "base", {"db.cfg": b"password=%PW%\n", "server.properties": b"a=1\n", "plain": b"x\n"}
    )
    plan = base_plan(
        workloads.shell('echo "again $PW" > copied; echo up; exec sleep 3600'),
        templates=(template,),
        substitute=("db.cfg",),
        patches=(PatchSpec(file="server.properties", path="rcon.password", value="%PW%"),),
        env={"PW": "%PW%"},
        variables={"PW": "file://pw"},
        variable_types={"PW": VariableSpec(type=VariableType.SECRET)},
        static=static,
    )
    await node.begin("one", plan)
    await node.says("one", "up")
    orders = orders_of(node)
    archive = scratch / "saved.tar.gz"

    async def saved(*paths: str, names: bool = False) -> dict[str, bytes]:
        await orders.pack(SaveFiles(instance_id="one", paths=paths, secret_names=names), archive)
        with tarfile.open(archive) as packed:
            return {name: packed.extractfile(name).read() for name in packed.getnames()}

    for path in ("db.cfg", "server.properties", "copied", "**"):
        with pytest.raises(CorralError) as failed:
            await saved(path)
        assert failed.value.code is Code.SECRET_EXPOSED
        assert "--secret-names" in (failed.value.hint or "")
        assert "TOPSECRETVALUE" not in str(failed.value)
    assert await saved("plain") == {"plain": b"x\n"}
    named = {
        "copied": b"again %PW%\n",
        "db.cfg": b"password=%PW%\n",
        "plain": b"x\n",
        "server.properties": b"a=1\nrcon.password=%PW%\n",
    }
    assert await saved("**", names=True) == named

    # The secret is another one by now, and no daemon knows what it was.
    await node.stop("one", force=True)
    await node.settled("one")
    if not static:
        return
    (node.data / "secrets" / "pw").write_text("ANOTHERVALUE")
    await node.reopen()
    for names in (False, True):
        with pytest.raises(CorralError) as failed:
            await orders_of(node).pack(
                SaveFiles(instance_id="one", paths=["db.cfg"], secret_names=names), archive
            )
        assert failed.value.code is Code.SECRET_EXPOSED


@pytest.fixture
async def orders_of():
    """Makes the orders of a node that save files; they are closed after the test."""
    made = []

    def make(node):
        made.append(
            SaveOrders(node.supervision.supervisor, node.supervision.directories, entropy=SystemEntropy())
        )
        return made[-1]

    yield make
    for orders in made:
        await orders.close()
