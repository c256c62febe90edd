"""What nodes say about modules: stored once, shown, and believed only where it makes sense."""

from __future__ import annotations

import pytest
from module_peer import digest, peer
from node_archives import install, node_archive

from corral.cli.failure import CommandRefused
from corral.domain.node_states import NodeState
from corral.domain.permissions import Role
from corral.testing.api_calls import call
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import MODULE_INTENT_ACTIVE, ModuleSetEntry, ModuleStateUpdate

STORY = (("", "INSTALLED"), ("INSTALLED", "WAITING"), ("WAITING", "ACTIVE"))


@pytest.fixture
async def controller(cluster):
    return await cluster.controller(link__heartbeat_seconds=30)


def row(controller, id="small", node="n1"):
    stored = controller.app.role.term.state.module_node_states.find(f"{node}/{id}")
    return stored.record if stored else None


def events_of(controller):
    seen = []

    async def keep(event):
        seen.append(event)

    async def refuse(_):
        raise AssertionError("the hub lost count")

    types = frozenset({"MODULE_NODE_STATE"})
    controller.app.role.term.hub.subscribe(name="test", types=types, on_event=keep, on_resync=refuse)
    return seen


def steps(seen):
    return [(event.data["from"] or "", event.data["to"]) for event in seen]


async def tell_story(node, archive, *, first=1):
    for sequence, (came_from, state) in enumerate(STORY, first):
        await node.tell(
            sequence=sequence,
            module_id="small",
            state=state,
            from_state=came_from,
            sha256=digest(archive),
            version="1.0.0",
            intent=MODULE_INTENT_ACTIVE,
        )


@pytest.mark.trap("T10")
async def test_a_spool_that_is_sent_twice_is_one_story_in_order(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    seen = events_of(controller)
    async with peer(controller, scratch) as node:
        await tell_story(node, archive)
        await tell_story(node, archive)
        await eventually(lambda: len(seen) >= 3, state=lambda: seen)
    entry = ModuleSetEntry(
        module_id="small",
        state="ACTIVE",
        sha256=digest(archive),
        version="1.0.0",
        intent=MODULE_INTENT_ACTIVE,
        updated_at_ms=1000,
    )
    async with peer(controller, scratch, entry, spool_head=4) as node:
        await tell_story(node, archive)
        await node.tell(sequence=4, module_id="small", state="STOPPING", from_state="ACTIVE")
        await eventually(lambda: len(seen) >= 4, state=lambda: seen)
        await eventually(lambda: controller.app.role.term.state.spools.find("n1").record.sequence == 4)
    assert steps(seen)[:4] == [*STORY, ("ACTIVE", "STOPPING")]
    assert {event.data["node"] for event in seen} == {"n1"}


async def test_how_modules_stand_on_nodes_outlives_the_controller(cluster, controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    async with peer(controller, scratch) as node:
        await tell_story(node, archive)
        await eventually(lambda: row(controller) and row(controller).phase == "ACTIVE")
    before = row(controller)
    await controller.app.stop()
    again = await cluster.controller()
    assert row(again) == before
    shown = (await again.call("GET", "/api/v1/modules/small"))["nodes"]
    assert [(each["node"], each["phase"], each["connected"]) for each in shown] == [("n1", "ACTIVE", False)]


async def test_the_list_of_a_handshake_counts_once_the_spool_is_taken_in(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    entry = ModuleSetEntry(
        module_id="small", state="WAITING", sha256=digest(archive), version="1.0.0", updated_at_ms=1000
    )
    async with peer(controller, scratch, entry, spool_head=2) as node:
        await tell_story(node, archive, first=1)  # the third came after the handshake was written
        await eventually(lambda: row(controller) and row(controller).phase == "ACTIVE")
        await node.tell(sequence=4, module_id="small", state="FAILED", from_state="ACTIVE", reason="hook")
        await eventually(lambda: row(controller).phase == "FAILED")
    async with peer(controller, scratch, entry, spool_head=4):
        await eventually(lambda: row(controller).phase == "WAITING")
    async with peer(controller, scratch, spool_head=4):
        await eventually(lambda: row(controller) is None)


async def test_nonsense_from_a_node_changes_nothing_and_is_answered(controller, scratch):
    await install(controller, node_archive(scratch))
    bad = [
        ({"state": "ACTIVE"}, "MISSING_FIELD"),
        ({"module_id": "small"}, "MISSING_FIELD"),
        ({"module_id": "small", "state": "SLEEPY"}, "INVALID_FIELD"),
        ({"module_id": "stranger", "state": "ACTIVE"}, "NOT_FOUND"),
        ({"module_id": "../" * 500, "state": "ACTIVE"}, "INVALID_FIELD"),
    ]
    async with peer(controller, scratch) as node:
        for sequence, (fields, code) in enumerate(bad, 1):
            await node.tell(sequence=sequence, **fields)
            report = await node.complaint()
            assert (report.error_code, report.context) == (code, "modules")
        plain = ModuleStateUpdate(module_id="stranger", size_bytes=5, fetched_bytes=1, state="ACTIVE")
        await node.send(DaemonMessage(module_state_update=plain))
        assert (await node.complaint()).error_code == "NOT_FOUND"
        await node.tell(
            sequence=9, module_id="small", state="FAILED", last_error="x" * 100_000, reason="\x00bad"
        )
        await eventually(lambda: row(controller))
        assert len(row(controller).error) == 4096
        assert len(controller.app.role.term.state.module_node_states) == 1
        assert controller.app.role.term.state.spools.find("n1").record.sequence == 9


async def test_what_a_node_says_of_a_module_that_was_just_uninstalled_is_no_complaint(controller, scratch):
    archive = node_archive(scratch)
    async with peer(controller, scratch) as node:
        await install(controller, archive)
        await node.order()
        await controller.call("DELETE", "/api/v1/modules/small")
        while type(await node.order()).__name__ != "ModuleUninstall":
            pass
        await tell_story(node, archive)
        await node.tell(module_id="small", state="UNLOADED", sequence=4)
        await node.tell(module_id="stranger", state="ACTIVE", sequence=5)
        assert "stranger" in (await node.complaint()).error_message
        assert row(controller) is None


async def test_with_a_revoked_or_removed_node_go_its_modules(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    for name in ("n1", "n2"):
        async with peer(controller, scratch, node=name) as node:
            await tell_story(node, archive)
            await eventually(lambda name=name: row(controller, node=name))
    await controller.call("POST", "/api/v1/nodes/n1/revoke", {})
    assert row(controller, node="n1") is None
    await eventually(lambda: controller.node_state("n2") is NodeState.DISCONNECTED)
    await controller.call("DELETE", "/api/v1/nodes/n2")
    assert row(controller, node="n2") is None
    assert (await controller.call("GET", "/api/v1/modules/small"))["nodes"] == []


async def test_modules_are_shown_by_node_and_nodes_by_module(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    await install(controller, node_archive(scratch, "zoo"))
    async with peer(controller, scratch) as node, peer(controller, scratch, node="n2"):
        await tell_story(node, archive)
        await node.tell(
            sequence=4,
            module_id="small",
            state="FAILED",
            from_state="ACTIVE",
            reason="process_died:SIGSEGV",
            last_error="Traceback: it fell over",
            sha256=digest(archive),
            version="1.0.0",
            intent=MODULE_INTENT_ACTIVE,
        )
        await eventually(lambda: row(controller) and row(controller).phase == "FAILED")
        page = await controller.call("GET", "/api/v1/modules/small/nodes?limit=1")
        (first,) = page["items"]
        assert (first["node"], first["connected"], first["phase"]) == ("n1", True, "FAILED")
        assert (first["version"], first["current"], first["refused"]) == ("1.0.0", True, False)
        assert (first["intent"], first["reason"]) == ("active", "process_died:SIGSEGV")
        assert (first["error"], first["settled"]) == ("Traceback: it fell over", True)
        rest = await controller.call("GET", f"/api/v1/modules/small/nodes?limit=1&cursor={page['next']}")
        (second,) = rest["items"]
        assert (second["node"], second["phase"], second["updated_at"]) == ("n2", None, None)
        assert (second["progress"], second["settled"], rest["next"]) == ("ordered", False, None)
        mine = (await controller.call("GET", "/api/v1/nodes/n1/modules"))["items"]
        assert [(each["module"], each["phase"], each["installed"]) for each in mine] == [
            ("small", "FAILED", "1.0.0"),
            ("zoo", None, "1.0.0"),
        ]
        with pytest.raises(CommandRefused):
            await controller.call("GET", "/api/v1/nodes/nobody/modules")
        made = await controller.call("POST", "/api/v1/tokens", {"name": "eye", "role": Role.VIEWER.value})
        seen = await call(controller.url, made["token"], "GET", "/api/v1/modules/small/nodes")
        assert [each["phase"] for each in seen["items"]] == ["FAILED", None]
