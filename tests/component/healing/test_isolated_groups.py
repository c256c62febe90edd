"""Groups of which at most one may run, on a node that is cut off."""

from __future__ import annotations

import pytest


@pytest.mark.trap("T11")
async def test_a_node_without_a_controller_stops_what_its_group_wants_to_be_stopped(site):
    await site.begin()
    ladder = [{"signal": "SIGTERM", "wait_seconds": 1}]
    away = {"stop_after_seconds": 1, "replace_after_seconds": 60}
    await site.group("one", min=1, max=1, stop=ladder, disconnect=away)
    await site.group("other", min=1)
    (one,) = await site.running(1, "one")
    (other,) = await site.running(1, "other")
    for node in {one.node, other.node}:
        await site.cut(node)
    await site.until(lambda: one.id not in site.copies.now())
    assert site.record(one.id).state.value == "OFFLINE", "before anything is started in its place"
    assert [each.id for each in site.records("one")] == [one.id]
    assert other.id in site.copies.now(), "its group does not ask for it"
