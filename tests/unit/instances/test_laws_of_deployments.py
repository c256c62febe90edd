"""I14, I10, I7, I3: whatever happens to a group that is being deployed, to its nodes, lines, leaders and instances."""

from __future__ import annotations

from typing import Any

import pytest
from changing_world import BAD, ChangingWorld
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_laws_of_drains import (
    LONG,
    NODES,
    OCCUPIED,
    SLOW,
    act,
    common_acts,
    documents,
    drain_acts,
    everybody_leaves,
    lived,
    open_again,
    rests,
)

from corral.controller.instances import deployments
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.groups.update_spec import Promotion, UpdateSpec, UpdateStrategy
from corral.domain.node_states import Admission

PROGRESS_SECONDS = 60
IN_FLIGHT = 8
"""The most instances that may have been started before a failure is known: five are wanted, and half as many on top."""
FIRST = {"min": 3, "env": {"VERSION": "0"}}
NO_ROOM = {"nodes": ("n1",), "memory_mb": 300, "update": UpdateSpec(progress_seconds=PROGRESS_SECONDS)}
"""There is room for three, and none for a fourth beside them."""
updates = st.builds(
    UpdateSpec,
    strategy=st.sampled_from(UpdateStrategy),
    max_surge=st.sampled_from([None, 2, "50%"]),
    max_unavailable=st.sampled_from([None, 1]),
    canary_seconds=st.sampled_from([0, 10]),
    promote=st.sampled_from([Promotion.AUTO, Promotion.AUTO, Promotion.MANUAL]),
    min_healthy_seconds=st.sampled_from([0, 5]),
    progress_seconds=st.just(PROGRESS_SECONDS),
    max_failures=st.sampled_from([1, 3]),
    auto_rollback=st.booleans(),
    drain_seconds=st.sampled_from([None, None, 0, 20]),
)
deployed_documents = st.builds(
    lambda document, update: {**document, "update": update, "env": {"VERSION": "0"}}, documents, updates
)
deploy_acts = st.one_of(
    st.tuples(st.just("deploy"), st.sampled_from(["good", "good", BAD])),
    st.tuples(
        st.just("verb"), st.sampled_from(["pause", "resume", "promote", "roll_back", "cancel", "restart"])
    ),
)


def deploy(world: ChangingWorld, kind: str) -> None:
    """A version that starts, or one that crashes. The document is good again afterwards."""
    world.versions_made += 1
    world.edit(f"{kind}-{world.versions_made}")
    world.ask(deployments.deploy_group, "lobby", by="ada", reason="test")
    if kind == BAD:
        world.versions_made += 1
        world.edit(f"good-{world.versions_made}")


def change(world: ChangingWorld, what: tuple[Any, ...]) -> None:
    match what:
        case "deploy", kind:
            deploy(world, kind)
        case "verb", "restart":
            world.ask(deployments.restart_revision, "lobby", by="ada")
        case "verb", verb:
            if (active := world.deployment()) is not None:
                world.ask(getattr(deployments, f"{verb}_deployment"), active.id, by="ada")
        case _:
            act(world, what)


def ends_or_waits(world: ChangingWorld) -> None:
    """I14: with nobody playing and every node there, a deployment ends; else it names what it waits for."""
    world.pass_time(30)
    everybody_leaves(world)
    world.pass_time(5 * PROGRESS_SECONDS)
    everybody_leaves(world)
    world.pass_time(7 * PROGRESS_SECONDS)
    active = world.deployment()
    if active is not None:
        held = world.group().hold is not None
        emptied = any(world.node(each).admission is not Admission.OPEN for each in NODES)
        manual = active.state is DeploymentState.GATE and active.options.promote is Promotion.MANUAL
        waits = held or emptied or manual or active.state is DeploymentState.PAUSED
        assert waits, f"I14: it goes on: {active} {world.states()}"
        assert active.waiting, f"I14: it names no wait: {active}"


def ended(world: ChangingWorld) -> DeploymentRecord | None:
    """What has become of the last deployment once nothing holds it up any more."""
    for _ in range(3):
        for verb in ("resume", "promote"):
            change(world, ("verb", verb))
        world.pass_time(3 * PROGRESS_SECONDS)
    found = world.state.deployments.of_group("lobby")
    last = found[0].record if found else None
    assert last is None or not last.active, f"I14: it does not end: {last} {world.states()}"
    return last


def by_revision(world: ChangingWorld, last: DeploymentRecord) -> None:
    """Everything runs by the target of a completed deployment, or by a later document where it was started since; and by
    the stable revision of one that was rolled back, to which the group is pinned."""
    completed = last.state is DeploymentState.COMPLETED
    number = last.target if completed else last.stable
    revision = world.state.revisions.numbered("lobby", number)
    assert revision is not None, f"{last.state}, and revision {number} is not kept"
    by_document = world.group().spec.env["VERSION"]
    for id, version in world.versions().items():
        later = completed and last.ended_at is not None and world.run_of(id).started_at >= last.ended_at
        allowed = {revision.spec.env["VERSION"], by_document if later else ""}
        assert version in allowed, f"{last.state} at {allowed}, and {id} runs {version}"


def failures_count(world: ChangingWorld) -> None:
    """A version that never gets ready is not COMPLETED, and is not tried much more often than it may fail."""
    for stored in world.state.deployments.of_group("lobby"):
        record = stored.record
        revision = world.state.revisions.numbered("lobby", record.target)
        bad = revision is not None and revision.spec.env["VERSION"].startswith(BAD)
        assert not (bad and record.state is DeploymentState.COMPLETED), f"COMPLETED: {record}"
        assert record.failed <= record.options.max_failures + IN_FLIGHT, f"it fails on and on: {record}"


def deployed(document: dict[str, Any], history: list[Any]) -> None:
    world = lived(document, history, change)
    ends_or_waits(world)
    rests(world)
    failures_count(world)
    for node in NODES:
        world.undrain(node)
    change(world, ("release",))
    last = ended(world)
    act(world, ("die", 0))  # what is started in its place is of the same revision
    open_again(world)
    if last is not None and last.state in (DeploymentState.COMPLETED, DeploymentState.ROLLED_BACK):
        by_revision(world, last)


histories = st.lists(st.one_of(common_acts, deploy_acts, deploy_acts, drain_acts), min_size=2, max_size=16)


@pytest.mark.system
@pytest.mark.trap("T36")
@settings(max_examples=10, **SLOW)
@given(deployed_documents, histories)
@example({"min": 3, "env": {"VERSION": "0"}}, [LONG, ("deploy", "good"), LONG])
@example({"min": 3, "env": {"VERSION": "0"}}, [LONG, ("players", 0, 5), ("deploy", BAD), ("lead",), LONG])
@example({**FIRST, "update": UpdateSpec(drain_seconds=20)}, [*OCCUPIED, ("deploy", "good"), LONG])
@example(
    {**FIRST, "min": 1, "update": UpdateSpec(max_surge=0, max_unavailable=1)}, [LONG, ("deploy", BAD), LONG]
)
@example(
    {**FIRST, "min": 2, "static": True},
    [LONG, ("players", 1, 5), ("deploy", "good"), ("pass", 30), ("verb", "roll_back"), LONG],
)
@example({**FIRST, **NO_ROOM}, [LONG, ("deploy", "good"), LONG])
@example(
    {"min": 3, "env": {"VERSION": "0"}},
    [LONG, ("deploy", "good"), ("drain", "n1", None, False), ("lead_after", 1), LONG],
)
def test_a_deployment_ends_or_names_its_wait(document: dict[str, Any], history: list[Any]) -> None:
    deployed(document, history)


def test_the_surge_of_a_deployment_is_not_shown_as_wanted_where_players_decide() -> None:
    world = ChangingWorld()
    world.create("lobby", **FIRST, max_players=10, scaling=ScalingSpec(mode=ScalingMode.DYNAMIC))
    world.pass_time(60)
    deploy(world, "good")
    numbers = set()
    for _ in range(60):
        world.pass_time(1)
        numbers.add((world.signals_now.wanted(world.group()), world._serving("lobby")))
    assert numbers == {(3, 3), (3, 4)}


@pytest.mark.system
@pytest.mark.timeout(300)
@settings(max_examples=150, **SLOW)
@given(deployed_documents, histories)
def test_deployments_end_in_many_histories(document: dict[str, Any], history: list[Any]) -> None:
    deployed(document, history)
