"""Instances of a store that was written before groups had revisions."""

from __future__ import annotations

import httpx
import msgspec
from http_rig import Rig

from corral.controller.instances.group_format_upgrade import upgrade_groups
from corral.controller.reconcile.apply_plan import Wake, keep_groups
from corral.controller.state.collections import CLUSTER, INSTANCES, ONLY, REVISIONS
from corral.controller.state.ledger import Step
from corral.domain.instance_states import InstanceState


async def as_before(rig: Rig) -> None:
    """What the version before had stored: no revisions, and instances without."""
    cluster = rig.state.cluster.require(ONLY)
    former = msgspec.structs.replace(cluster.record, group_format=3)
    steps: list[Step] = [CLUSTER.put(ONLY, former, expect=cluster.revision)]
    steps += [REVISIONS.delete(id, expect=None) for id, _ in rig.state.revisions.items()]
    for stored in rig.state.instances:
        record = msgspec.structs.replace(stored.record, revision=0)
        steps.append(INSTANCES.put(record.id, record, expect=stored.revision))
    await rig.ledger.commit(*steps)


def revisions(rig: Rig) -> dict[str, int]:
    return {stored.record.id: stored.record.revision for stored in rig.state.instances}


async def drifts(client: httpx.AsyncClient) -> dict[str, str]:
    listed = (await client.get("/api/v1/instances")).json()["items"]
    return {each["id"]: each["drift"] for each in listed}


async def test_what_runs_by_the_present_document_belongs_to_the_first_revision(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group(max=9, env={"A": "1"})
    await rig.instance()
    await client.patch("/api/v1/groups/lobby", json={"env": {"A": "2"}})
    await rig.instance()
    await rig.instance()
    await rig.report("lobby-3", state=InstanceState.STOPPED)
    await client.post("/api/v1/groups/lobby/scale", json={"count": 2})
    await as_before(rig)
    before = await drifts(client)
    assert before == {"lobby-1": "outdated", "lobby-2": "none", "lobby-3": "none"}
    await upgrade_groups(rig.ledger)
    assert revisions(rig) == {"lobby-1": 0, "lobby-2": 1, "lobby-3": 0}
    first = rig.state.revisions.newest("lobby")
    assert first is not None
    assert (first.number, first.trigger, first.spec.env) == (1, "upgrade", {"A": "2"})
    assert await drifts(client) == before
    ws = rig.instances.workspace(cause="the first pass")
    keep_groups(ws, {"lobby": Wake(cause="the first pass")}, signals=rig.instances.signals.now())
    assert not ws.steps(), "nothing restarts"
    number = rig.state.number
    await upgrade_groups(rig.ledger)
    assert rig.state.number == number, "once"
    await rig.instance()
    assert revisions(rig)["lobby-4"] == 1


async def test_an_upgrade_that_was_interrupted_goes_on(rig: Rig) -> None:
    await rig.group(max=9)
    for _ in range(2):
        await rig.instance()
    await as_before(rig)
    await upgrade_groups(rig.ledger)
    stored = rig.state.instances.require("lobby-2")
    record = msgspec.structs.replace(stored.record, revision=0)
    cluster = rig.state.cluster.require(ONLY)
    former = msgspec.structs.replace(cluster.record, group_format=3)
    await rig.ledger.commit(
        INSTANCES.put("lobby-2", record, expect=stored.revision),
        CLUSTER.put(ONLY, former, expect=cluster.revision),
    )
    await upgrade_groups(rig.ledger)
    assert revisions(rig) == {"lobby-1": 1, "lobby-2": 1}
    assert list(rig.state.revisions.numbers("lobby")) == [1]


async def test_groups_that_run_nothing_or_cannot_be_planned_get_none(rig: Rig) -> None:
    await rig.group("idle")
    await rig.template("files")
    await rig.group(max=9, templates=["files"])
    await rig.instance()
    await as_before(rig)
    rig.state.quarantine.add(REVISIONS.name, "lobby/1", 1, ValueError("broken"))
    await upgrade_groups(rig.ledger)
    assert rig.state.revisions.groups() == []
