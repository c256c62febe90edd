"""Starts by an earlier revision on real daemons: the node gets the files of then."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from depot import Depot, unpacked

from corral.controller.instances.revisions import make_revision
from corral.controller.state.collections import GROUPS
from corral.controller.state.ledger import Step
from corral.controller.term.housekeeping import surplus_versions
from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually


async def pin(depot: Depot, number: int) -> None:
    stored = depot.state.groups.require("lobby")
    record = msgspec.structs.replace(stored.record, pinned_revision=number)
    await depot.term.ledger.commit(GROUPS.put("lobby", record, expect=stored.revision))


async def greeting(depot: Depot, id: str) -> bytes:
    async with depot.term.distribution.save_files(id, ["greeting.txt"]) as blocks:
        return unpacked(b"".join([block async for block in blocks]))["greeting.txt"]


async def test_a_node_that_never_had_them_gets_the_files_of_the_pinned_revision(
    cluster: LocalCluster, depot: Depot
) -> None:
    controller = await depot.begin()
    await depot.upload("base", {"greeting.txt": b"first"})
    await cluster.daemon("n1", controller)
    stop = [{"signal": "SIGTERM", "wait_seconds": 5}]
    await depot.group(command=["sleep", "600"], templates=["base"], env={"A": "1"}, stop=stop)
    first = await controller.call("POST", "/api/v1/instances?wait=running", {"group": "lobby"})
    for text in (b"second", b"third"):
        await depot.upload("base", {"greeting.txt": text})
    await controller.call("PATCH", "/api/v1/groups/lobby", {"env": {"A": "2"}})
    second = await controller.call("POST", "/api/v1/instances?wait=running", {"group": "lobby"})
    for each in (first, second):
        await controller.call("POST", f"/api/v1/instances/{each['id']}/kill?wait=stopped", {})
        await controller.call("DELETE", f"/api/v1/instances/{each['id']}")
    for dropped in surplus_versions(depot.state, keep=1):
        await depot.term.ledger.commit(dropped)
    kept = depot.state.templates.require("base").record.versions
    assert [version.number for version in kept] == [1, 3], "the revisions have these"
    await pin(depot, first["deployment_revision"])
    await cluster.daemon("n2", controller)
    body = {"group": "lobby", "node": "n2"}
    again = await controller.call("POST", "/api/v1/instances?wait=running", body)
    assert (again["deployment_revision"], again["plan_hash"]) == (1, first["plan_hash"])
    assert await eventually(lambda: greeting(depot, again["id"])) == b"first"
    await pin(depot, 0)
    await controller.call("POST", f"/api/v1/instances/{again['id']}/restart?wait=running", {})
    assert await eventually(lambda: greeting(depot, again["id"])) == b"third"
    shown = await controller.call("GET", f"/api/v1/instances/{again['id']}")
    assert (shown["deployment_revision"], shown["drift"]) == (2, "none")


async def test_a_node_that_joins_gets_the_files_of_the_pinned_revision_beforehand(
    cluster: LocalCluster, depot: Depot
) -> None:
    controller = await depot.begin()
    await depot.upload("base", {"greeting.txt": b"first"})
    await depot.group(templates=["base"])
    await depot.term.ledger.commit(*made_revision(depot))
    await depot.upload("base", {"greeting.txt": b"second"})
    await pin(depot, 1)
    await cluster.daemon("n1", controller)

    async def held() -> bool:
        report = await depot.term.distribution.cache_status("n1")
        return {(each.name, each.version) for each in report.templates} == {("base", 1), ("base", 2)}

    await eventually(held)


def made_revision(depot: Depot) -> Sequence[Step]:
    ws = depot.term.instances.workspace(cause="test")
    make_revision(ws, "lobby", by="admin", trigger="manual")
    return ws.steps()
