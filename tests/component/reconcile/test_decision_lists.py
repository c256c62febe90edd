"""Decisions in lists: each one once, whichever journals it is in."""

from __future__ import annotations


async def _listed(fleet, query: str) -> list[str]:
    """The ids of all pages, in their order."""
    ids, cursor = [], ""
    while cursor is not None:
        page = await fleet.controller.call("GET", f"/api/v1/decisions?{query}{cursor}")
        ids += [each["id"] for each in page["items"]]
        cursor = page["next"] and f"&cursor={page['next']}"
    return ids


async def test_a_list_of_all_decisions_has_each_once_on_whatever_page(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=3)
    await fleet.running(3)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 4})
    await fleet.running(4)
    of_group = await _listed(fleet, "subject=group/lobby&limit=100")
    for limit in [1, 2, 3, 100]:
        assert len(of_group) == len(set(of_group)) == 5, limit
        assert await _listed(fleet, f"limit={limit}") == of_group, limit


async def test_decisions_about_a_node_are_listed(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    page = await fleet.controller.call("GET", "/api/v1/decisions?subject=node/n1")
    assert {(each["kind"], each["node"]) for each in page["items"]} == {("start", "n1")}
    assert {each["subject"] for each in page["items"]} == {"lobby-1", "lobby-2"}
