"""Histories of a world: what operators, nodes, players and clocks do, one after the other, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from reconciled_world import ReconciledWorld

from corral.controller.instances import group_changes, instance_changes
from corral.domain.groups.group import CrashLoopSpec, DependencySpec, PortSpec, RestartOn, RestartSpec
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.groups.scaling_spec import MaintenanceSpec, ScalingMode, ScalingSpec, ScheduleSpec
from corral.domain.node_states import Admission

GROUPS = ("g0", "g1", "s0", "s0")
NODES = ("n1", "n2")
COUNTED = {
    "probes": (ProbeSpec(kind=ProbeKind.MINECRAFT),),
    "ports": {"primary": PortSpec(range=(20_000, 20_999))},
}
"""The node counts the players."""
SCHEDULES = (
    ScheduleSpec(name="burst", cron="*/20 * * * *", duration_seconds=600, min=2),
    ScheduleSpec(name="small", cron="0 * * * *", duration_seconds=1200, max=1),
    ScheduleSpec(name="warm", cron="30 * * * *", duration_seconds=300, warm=1),
    ScheduleSpec(
        name="closed", cron="*/30 * * * *", duration_seconds=300, maintenance=MaintenanceSpec(enabled=True)
    ),
    ScheduleSpec(name="by-hand", cron="10 * * * *", duration_seconds=900, mode=ScalingMode.MANUAL),
    ScheduleSpec(name="by-load", cron="40 * * * *", duration_seconds=900, mode=ScalingMode.DYNAMIC),
    ScheduleSpec(name="fixed", cron="50 * * * *", duration_seconds=900, mode=ScalingMode.STATIC),
)

groups = st.sampled_from(GROUPS)
nodes = st.sampled_from(NODES)
which = st.integers(0, 7)
"""One of the instances, by its place among all."""
flags = st.booleans()
documents = st.fixed_dictionaries(
    {
        "min": st.integers(0, 12),
        "warm": st.integers(0, 2),
        "static": flags,
        "memory_mb": st.sampled_from([10, 400]),
        "restart": st.sampled_from([RestartSpec(on=each) for each in RestartOn]),
        "crash_loop": st.just(CrashLoopSpec(failures=2, within_seconds=60, pause_seconds=60)),
        "min_alive_ms": st.just(0),
        "depends_on": st.sampled_from([(), (DependencySpec(group="g0"),)]),
    }
)
scalings = st.builds(
    ScalingSpec,
    mode=st.sampled_from([ScalingMode.DYNAMIC, ScalingMode.DYNAMIC, ScalingMode.MANUAL, ScalingMode.STATIC]),
    up_threshold=st.sampled_from([0.5, 0.8, 1.0]),
    free_slots=st.sampled_from([0, 0, 3, 7]),
    idle_seconds=st.sampled_from([0, 40, 300]),
    window_seconds=st.sampled_from([0, 30, 300]),
    cooldown_seconds=st.sampled_from([0, 60]),
    max_step=st.integers(1, 3),
)
scaled_documents = st.fixed_dictionaries(
    {
        "min": st.integers(0, 3),
        "max": st.sampled_from([None, 3, 5]),
        "max_players": st.sampled_from([1, 4, 10]),
        "scaling": scalings,
        "warm": st.sampled_from([0, 0, 1, 2]),
        "static": st.sampled_from([False, False, False, True]),
        "memory_mb": st.sampled_from([10, 150]),
        "restart": st.sampled_from([RestartSpec(on=each) for each in RestartOn]),
        "crash_loop": st.just(CrashLoopSpec(failures=2, within_seconds=60, pause_seconds=60)),
        "min_alive_ms": st.just(0),
        "counted": flags,
    }
)
overlays = st.lists(st.sampled_from(SCHEDULES), max_size=3, unique=True).map(tuple)
patches = st.fixed_dictionaries(
    {},
    optional={
        "min": st.integers(0, 4),
        "max": st.sampled_from([None, 1, 2, 4]),
        "warm": st.integers(0, 2),
        "memory_mb": st.integers(1, 700),
        "maintenance": st.sampled_from([None, {"enabled": True}]),
        "scaling": st.sampled_from(
            [
                {"mode": "DYNAMIC"},
                {"mode": "MANUAL"},
                {"mode": "STATIC"},
                {"free_slots": 6},
                {"cooldown_seconds": 0},
                {"cooldown_seconds": 600},
                {"window_seconds": 600},
            ]
        ),
    },
)
load_acts = st.one_of(
    st.tuples(st.just("players"), which, st.sampled_from([0, 0, 1, 3, 9, None])),
    st.tuples(st.just("crowd"), st.sampled_from([0, 0, 2, 5, 9])),
    st.tuples(st.just("keep"), st.just("s0"), st.integers(0, 4), st.sampled_from([60, 900])),
    st.tuples(st.just("patch"), st.just("s0"), patches),
    st.tuples(st.just("pass"), st.sampled_from([70, 310, 1300])),
    st.tuples(st.just("empty"), st.sampled_from([45, 310, 700])),
    st.just(("obey", "n1")),
    st.just(("obey", "n2")),
)
steady_acts = st.one_of(
    st.tuples(st.just("create"), groups, documents),
    st.tuples(st.just("create"), groups, scaled_documents),
    st.tuples(st.just("patch"), groups, patches),
    st.tuples(st.just("scale"), groups, st.integers(0, 4)),
    st.tuples(st.just("hold"), groups, flags),
    st.tuples(st.sampled_from(["release", "unpause", "delete", "start"]), groups),
    st.tuples(st.sampled_from(["stop", "kill", "restart", "remove", "end", "enter", "leave"]), which),
    st.tuples(st.sampled_from(["crash", "refuse"]), which, flags),
    st.tuples(st.just("crash"), which, st.just(False)),
    st.tuples(st.sampled_from(["drop", "forget"]), nodes),
    st.just(("obey", "n1")),
    st.just(("obey", "n2")),
    st.tuples(st.just("return"), nodes, flags, st.sampled_from(["", "g1-9"])),
    st.tuples(st.just("cordon"), nodes, flags),
    st.tuples(st.just("wait"), st.sampled_from([1, 6, 31, 70, 310, 4000])),
    st.just(("look",)),
)
clock_acts = st.tuples(st.just("clock"), st.sampled_from([3600, -3600]))
leader_acts = st.tuples(st.just("leader"), flags)
schedule_acts = st.tuples(st.just("schedule"), groups, overlays)


LOBBY = {
    "min": 2,
    "warm": 1,
    "static": False,
    "memory_mb": 300,
    "max": 6,
    "crash_loop": CrashLoopSpec(failures=2, within_seconds=60, pause_seconds=60),
}
MATCHES = {**LOBBY, "warm": 0, "restart": RestartSpec(on=RestartOn.FAILURE), "min_alive_ms": 0}
LARGE = {"min": 2, "memory_mb": 900, "static": False}
OBEY = (("obey", "n1"), ("obey", "n2"))
CRASHES = (("crash", 0, False), ("crash", 1, False))
BEGIN = (("create", "g0", LOBBY), ("settle",), *OBEY, ("settle",))


def load_document(**fields):
    """A group whose number follows its players."""
    scaling = ScalingSpec(mode=ScalingMode.DYNAMIC, **fields.pop("scaling", {}))
    base = {
        "min": 1,
        "max_players": 10,
        "static": False,
        "memory_mb": 10,
        "scaling": scaling,
        "counted": True,
    }
    return {**base, **fields}


def after(*history) -> list:
    """These acts, each with a turn of the reconciler after it."""
    return [(each, True) for each in history]


turns = st.sampled_from([True, True, False])


@st.composite
def histories(draw, *more):
    """What happens, and whether the reconciler has its turn before the next. One group follows its load from the
    beginning."""
    document = draw(scaled_documents)
    begin = after(("create", "s0", document), *OBEY, ("crowd", draw(st.sampled_from([0, 1, 5, 9]))), *OBEY)
    acts = st.one_of(steady_acts, load_acts, *more)
    size = draw(st.integers(1, 30))
    return begin + draw(st.lists(st.tuples(acts, turns), min_size=size, max_size=size))


any_histories = histories(schedule_acts, clock_acts, leader_acts)


def lived(history, world: ReconciledWorld | None = None) -> ReconciledWorld:
    """A world with a group that runs, after this has happened to it."""
    world = world or ReconciledWorld()
    for each in BEGIN:
        act(world, *each)
    for each, settles in history:
        act(world, *each)
        if settles:
            world.settle()
    world.settle()
    return world


def instance(world: ReconciledWorld, number: int) -> InstanceRecord | None:
    found = sorted((each.record for each in world.state.instances), key=lambda each: each.id)
    return found[number % len(found)] if found else None


def act(world: ReconciledWorld, what: str, *args) -> None:
    """One thing that happens; what is not possible is left out."""
    match what, args:
        case "create", (name, fields):
            if world.state.groups.find(name) is None:
                world.create(name, **_document(name, fields))
        case "look", ():
            world.look_at_everything()
        case "settle", ():
            world.settle()
        case "wait", (seconds,):
            world.wait(seconds)
        case "pass", (seconds,):
            world.live_on(seconds)
        case "clock", (seconds,):
            world.set_clock(seconds)
        case "leader", (told,):
            world.change_leader(told=told)
        case "empty", (seconds,):
            act(world, "crowd", 0)
            world.live_on(seconds)
        case "crowd", (count,):
            for stored in list(world.state.instances.of_group("s0")):
                world.count_players(stored.record.id, count)
        case "obey", (node,):
            world.obey(node)
        case "drop", (node,):
            world.drop(node)
        case "forget", (node,):
            world.forget(node)
        case "return", (node, with_runs, adopted):
            world.come_back(node, with_runs=with_runs, adopted=adopted)
        case "cordon", (node, closed):
            world.configure_node(node, Admission.CORDONED if closed else Admission.OPEN)
        case _, (str(name), *more) if world.state.groups.find(name) is not None:
            _of_group(world, what, name, *more)
        case _, (int(number), *more) if (record := instance(world, number)) is not None:
            _of_instance(world, what, record, *more)


def _document(name: str, fields: dict) -> dict:
    fields = {**fields, "warm": 0} if fields["static"] else fields
    fields = {**fields, "depends_on": ()} if name == "g0" else fields
    counted = COUNTED if fields.get("counted") else {}
    return {**{key: value for key, value in fields.items() if key != "counted"}, **counted}


def _of_group(world: ReconciledWorld, what: str, name: str, *args) -> None:
    match what, args:
        case "patch", (fields,):
            world.ask(group_changes.patch_group, name, fields)
        case "schedule", (overlays,):
            world.ask(group_changes.patch_group, name, {"schedules": [_written(each) for each in overlays]})
        case "scale", (count,):
            world.ask(group_changes.scale_group, name, count)
        case "keep", (count, seconds):
            world.ask(group_changes.scale_group, name, count, seconds=seconds)
        case "hold", (when_empty,):
            world.ask(group_changes.hold_group, name, by="ada", reason="test", when_empty=when_empty)
        case "release", ():
            world.ask(group_changes.release_group, name, by="ada")
        case "unpause", ():
            world.ask(group_changes.unpause_group, name)
        case "delete", ():
            world.ask(group_changes.delete_group, name, cascade=True, confirm=name)
        case "start", ():
            world.ask(instance_changes.start_instance, name)


def _written(schedule: ScheduleSpec) -> dict:
    fields = ("name", "cron", "duration_seconds", "min", "max", "warm", "mode")
    found = {key: value for key in fields if (value := getattr(schedule, key)) is not None}
    return {**found, "maintenance": {"enabled": True}} if schedule.maintenance is not None else found


def _of_instance(world: ReconciledWorld, what: str, record: InstanceRecord, *args) -> None:
    match what, args:
        case "stop", ():
            world.ask(instance_changes.stop_instance, record.id, reason="by ada")
        case "kill", ():
            world.ask(instance_changes.kill_instance, record.id, reason="by ada")
        case "restart", ():
            world.ask(instance_changes.restart_instance, record.id, reason="by ada")
        case "remove", ():
            world.ask(instance_changes.remove_instance, record.id)
        case "end", ():
            world.end(record)
        case "enter", ():
            world.enter(record.id)
        case "leave", ():
            world.leave(record.id)
        case "players", (count,):
            world.count_players(record.id, count)
        case "crash", (restarted,):
            world.crash(record, restarted=restarted)
        case "refuse", (permanent,):
            world.refuse(record, permanent=permanent)
