"""Many groups with many schedules: what is computed about them holds up nobody else."""

from __future__ import annotations

import pathlib

from corral.controller.reconcile.due_schedules import compute_schedules
from corral.domain.cron import Cron
from corral.domain.groups.scaling_spec import SCHEDULES
from corral.testing.cluster import LocalCluster
from corral.testing.counted_calls import calls_by_turn, counted_calls
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually

GROUPS = 60


def group(number: int) -> dict[str, object]:
    """A group with as many schedules as it can have; the last of them closes it."""
    schedules = [
        {"name": f"s{number}-{each}", "cron": "0 0 * * *", "duration_seconds": 86_400, "max": each}
        for each in range(1, SCHEDULES)
    ]
    closes = {
        "name": "closes",
        "cron": "0 0 * * *",
        "duration_seconds": 86_400,
        "maintenance": {"enabled": True},
    }
    return {"name": f"g{number}", "command": ["true"], "schedules": [*schedules, closes]}


async def test_schedules_of_many_groups_are_computed_in_many_turns_of_the_loop(
    tmp_path: pathlib.Path,
) -> None:
    documents = [{"path": f"{number}.yaml", "body": group(number)} for number in range(GROUPS)]
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller()
        term = controller.app.role.term
        assert term is not None
        async with calls_by_turn() as count:
            await controller.call("POST", "/api/v1/apply", {"documents": documents})
            await eventually(lambda: all(each.record.closed for _, each in term.state.groups.items()))
        assert count.of(Cron.last_until) >= GROUPS * SCHEDULES
        assert count.most_in_a_turn < count.calls / 4


async def test_groups_that_become_due_meanwhile_are_computed_before_the_pass_too(
    tmp_path: pathlib.Path,
) -> None:
    documents = [{"path": f"{number}.yaml", "body": group(number)} for number in range(2)]
    clock = SteppedClock()
    clock.step(2 * 86_400)  # nothing of then is known
    answers = [["g0"], ["g0", "g1"]]
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller()
        await controller.call("POST", "/api/v1/apply", {"documents": documents})
        term = controller.app.role.term
        assert term is not None
        with counted_calls() as count:
            await compute_schedules(term.state, lambda: answers.pop(0) if answers else ["g0", "g1"], clock)
    assert count.of(Cron.last_until) == 2 * SCHEDULES
