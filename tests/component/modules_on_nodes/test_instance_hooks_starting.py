"""What modules make of starts, and what those that misbehave do not."""

from __future__ import annotations

import asyncio
import functools
import json

import pytest
from hooked_node import FIRST, HookedNode, arguments, changes, environment

from corral.daemon.prepare.prepared_start import Proposal
from corral.domain.groups.group import RestartSpec
from corral.domain.modules.verbs import Verb
from corral.sdk.instances import InstanceSpec
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import StartPreparationStage

SLEEPS = ("/bin/sh", "-c", "exec sleep 3600", "me")
LATE = "did not answer within"
BEASTS = {
    "b-hangs": ("spec.env['EVIL'] = '1'; await asyncio.Event().wait()", LATE),
    "b-spins": ("spec.env['EVIL'] = '1'\nwhile True: pass", LATE),
    "b-raises": ("spec.env['EVIL'] = '1'; raise BaseException('no')", "BaseException: no"),
    "b-dies": ("spec.env['EVIL'] = '1'; ctypes.string_at(0)", "SIGSEGV"),
    "b-eats": ("spec.env['EVIL'] = '1'; self.eaten = b'x' * (4 << 30)", "MemoryError|memory"),
    "b-jar": ("spec.env['EVIL'] = '1'; spec.jvm_args.append('-jar')", "jvm_args"),
    "b-preload": ("spec.env['EVIL'] = '1'; spec.env['LD_PRELOAD'] = '/evil.so'", "LD_PRELOAD"),
    "b-talks": ("spec.env['EVIL'] = 'x' * (8 << 20)", "raised"),
    "b-numbers": ("spec.env = {'EVIL': 1}", "env holds something else than texts"),
}


@pytest.fixture
async def node(scratch):
    node = HookedNode(scratch / "node")
    await node.open()
    yield node
    await node.clear()


@pytest.mark.trap("T4")
async def test_whatever_some_modules_do_the_start_succeeds_with_what_the_others_want(node):
    for id, (body, why) in BEASTS.items():
        await node.install(id, changes(body), hook_ms=400 if why == LATE else 4000)
    await node.install("a-good", changes("spec.env['ANT'] = spec.group; spec.env['WHO'] = 'ant'"))
    await node.install("c-good", changes("spec.env['WHO'] = 'cat'; spec.args.append(spec.instance_id)"))
    run = await node.start("one-1", SLEEPS)
    found = environment(run)
    assert (found["ANT"], found["WHO"]) == ("test", "cat")
    assert "EVIL" not in found
    assert "LD_PRELOAD" not in found
    said = {change.module: change for change in run.made_by_modules.changes}
    assert sorted(said) == sorted([*BEASTS, "a-good", "c-good"])
    for id, (_, why) in BEASTS.items():
        assert any(word in said[id].dropped for word in why.split("|")), said[id]
        assert not said[id].env_set
    assert said["a-good"].env_set == ("ANT", "WHO")
    assert said["c-good"].args_added == ("one-1",)
    assert run.order.plan is not None
    assert run.order.plan.env == {}, "the plan is as it was"
    assert run.files.provenance() == run.made_by_modules


async def test_modules_are_asked_at_the_same_time(node):
    """Each answers when the other one was asked: many that are late cost one deadline."""
    node.hooks.budget_seconds = 60.0
    meets = """
        pathlib.Path(MARKS, ME).touch()
        while not os.path.exists(os.path.join(MARKS, OTHER)):
            await asyncio.sleep(0.01)
        spec.env[ME] = "met"
    """
    for me, other in (("ant", "bee"), ("bee", "ant")):
        names = {"MARKS": repr(str(node.archives)), "ME": repr(me), "OTHER": repr(other)}
        code = functools.reduce(lambda text, name: text.replace(name, names[name]), names, meets)
        await node.install(me, changes(code), hook_ms=60_000)
    found = environment(await node.start("one-1", SLEEPS))
    assert (found["ant"], found["bee"]) == ("met", "met")


async def test_modules_see_the_start_and_each_has_a_copy_of_its_own(node):
    await node.install(
        "a", changes("spec.env['SEEN_A'] = json.dumps([spec.args, sorted(spec.env)]); spec.args.clear()")
    )
    await node.install("b", changes("spec.env['SEEN_B'] = json.dumps([spec.args, sorted(spec.env)])"))
    facts = "[spec.instance_id, spec.group, spec.node_id, spec.memory_mb, spec.static, spec.work_dir, spec.plan_hash]"
    await node.install("c", changes(f"spec.env['FACTS'] = json.dumps({facts})"))
    await node.install("d", changes("spec.env['NOT_ASKED'] = '1'"))
    await node.engine.act("d", Verb.DEACTIVATE)
    run = await node.start(
        "one-1", ("/bin/sh", "-s", "%NAME%"), variables={"NAME": "value"}, env={"X": "%NAME%"}
    )
    found = environment(run)
    assert found["SEEN_A"] == found["SEEN_B"] == '[["-s", "value"], ["X"]]'
    work_dir = str(node.data / "running" / "one-1")
    assert json.loads(found["FACTS"])[:6] == ["one-1", "test", "node-1", 0, False, work_dir]
    assert arguments(run) == ["/bin/sh"]
    assert "NOT_ASKED" not in found, "it is not ACTIVE"


async def test_who_overruns_itself_or_uses_up_the_whole_budget_of_the_node_is_blamed(scratch):
    node = HookedNode(scratch / "node", budget=0.2)
    await node.open()
    try:
        await node.install("patient", changes("await asyncio.Event().wait()"), hook_ms=5000)
        await node.install("slow", changes("await asyncio.Event().wait()"), hook_ms=100)
        runs = [await node.start(f"one-{number}", SLEEPS) for number in range(3)]
        dropped = {change.module: change.dropped for change in runs[0].made_by_modules.changes}
        assert dropped == {
            "patient": f"it {LATE} 0.2 s (the node's budget for hooks, modules.hook_budget_seconds)",
            "slow": f"it {LATE} 0.1 s (its hookDeadlineMs)",
        }

        def reasons() -> set[str]:
            return {record.reason for record in map(node.record, ("patient", "slow")) if record is not None}

        await eventually(lambda: reasons() == {"hook_overrun:on_instance_starting"}, state=reasons)
    finally:
        await node.clear()


@pytest.mark.system
async def test_a_hook_that_a_start_cuts_short_for_want_of_time_is_not_blamed(scratch):
    node = HookedNode(scratch / "node", budget=5)
    await node.open()
    try:
        await node.install("patient", changes("await asyncio.Event().wait()"), hook_ms=5000)
        for number in range(3):
            run = await node.start(f"one-{number}", SLEEPS, startup_timeout_seconds=2)
            (change,) = run.made_by_modules.changes
            assert "startup_timeout_seconds" in change.dropped
        await node.engine.rest()
        patient = node.engine.scope("patient")
        assert patient is not None
        assert patient.serving
    finally:
        await node.clear()


async def test_a_start_with_little_time_is_not_failed_by_its_modules(node):
    node.gate.open.clear()
    await node.install("hangs", changes("await asyncio.Event().wait()"), hook_ms=30_000)
    run = await node.start("one-1", SLEEPS, startup_timeout_seconds=2)
    assert run.pid
    assert "did not answer" in run.made_by_modules.changes[0].dropped
    assert len(run.made_by_modules.missing) == 1


async def test_a_start_waits_for_the_modules_and_says_which_were_missing(node):
    node.gate.open.clear()
    node.gate.missing = ("late: its archive is on its way",)
    starting = asyncio.create_task(node.start("one-1", SLEEPS))
    await eventually(lambda: node.supervision.supervisor.instances.find("one-1"))
    await node.install("a", changes("spec.env['A'] = '1'"))
    assert not starting.done()
    waits = node.supervision.supervisor.expect("one-1", 0)
    await eventually(lambda: waits.reason == "waiting for modules: late: its archive is on its way")
    node.gate.missing = (
        "late: being fetched, 1 of 2 bytes",
        *(f"more-{n}: still starting" for n in range(9)),
    )
    await eventually(lambda: "1 of 2 bytes; more-0" in waits.reason and waits.reason.endswith("and 5 more"))
    node.gate.missing = ("late: its archive is on its way",)
    node.gate.open.set()
    run = await starting
    assert run.reason == "", "it goes on"
    said = [m.instance_status for m in node.sent if m.instance_status.stage]
    assert {m.stage for m in said} == {StartPreparationStage.START_PREPARATION_STAGE_PROCESS_START}
    assert (said[-2].reason[:20], said[-1].reason) == ("waiting for modules:", "")
    assert environment(run)["A"] == "1"
    assert run.made_by_modules.missing == ("late: its archive is on its way",)
    told = (await node.reports("one-1"))[-1]
    assert list(told.modules_missing) == ["late: its archive is on its way"]
    assert [change.module_id for change in told.module_changes] == ["a"]


async def test_a_stop_while_modules_are_asked_interrupts_the_start(node):
    await node.install(
        "hangs", changes("pathlib.Path(spec.work_dir, 'asked').touch(); await asyncio.Event().wait()")
    )
    starting = asyncio.create_task(node.start("one-1", SLEEPS))
    asked = node.data / "running" / "one-1" / "asked"
    await eventually(asked.exists)
    run = await node.stop("one-1")
    await starting
    assert run.outcome is not None
    assert run.outcome.outcome == "never_started"


async def test_java_takes_jvm_arguments_behind_its_program_and_other_programs_take_none(node, scratch):
    java = scratch / "java"
    java.write_text("#!/bin/sh\nread _\n")
    java.chmod(0o755)
    await node.install("a", changes("spec.jvm_args.append('-Xlog:gc'); spec.args.append('more')"))
    await node.install("b", changes("if '-jar' in spec.args: spec.args[1] = 'evil.jar'"))
    run = await node.start("one-1", (str(java), "-jar", "app.jar", "nogui"))
    assert arguments(run)[2:] == ["-Xlog:gc", "-jar", "app.jar", "nogui", "more"]
    assert "up to what is run" in run.made_by_modules.changes[1].dropped
    other = await node.start("two-1", SLEEPS)
    assert arguments(other)[-1] != "more"
    assert "no Java" in other.made_by_modules.changes[0].dropped


async def test_each_run_of_an_instance_is_asked_about_anew(node):
    await node.install("a", changes("self.n = getattr(self, 'n', 0) + 1; spec.env['N'] = str(self.n)"))
    fails = workloads.shell('[ "$N" = 3 ] || exit 5; exec sleep 3600')
    await node.start("one-1", fails, restart=RestartSpec(attempts=5, delay_ms=10))
    run = await node.until_run("one-1", FIRST + 2)
    assert environment(run)["N"] == "3"
    assert run.made_by_modules.changes[0].env_set == ("N",)


async def test_a_start_that_meets_the_end_of_the_daemon_is_begun_by_the_next_one_with_its_modules(node):
    await node.install("a", changes("spec.env['A'] = '1'"))
    node.gate.open.clear()
    starting = asyncio.create_task(node.start("one-1", SLEEPS))
    await eventually(lambda: node.supervision.supervisor.instances.find("one-1"))
    await node.hooks.close()
    node.gate.open.set()
    await node.close()
    starting.cancel()
    await node.open(settled=False)
    await node.install("a", changes("spec.env['A'] = '2'"))
    node.gate.open.set()
    assert environment(await node.until_run("one-1", FIRST))["A"] == "2"


async def test_without_modules_a_start_awaits_nothing(node):
    await node.install("a", "class Demo(DaemonModule):\n    pass")
    asking = node.hooks.starting(Proposal(spec=InstanceSpec(instance_id="x", group="g")), patience=60)
    with pytest.raises(StopIteration) as ended:
        asking.send(None)
    assert ended.value.value.changes == ()
