"""What a connected or connecting node is told about modules."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time

import pytest
from module_peer import digest, peer
from node_archives import install, node_archive

from corral.cli.failure import CommandRefused
from corral.controller.modules_on_nodes.order_frames import INLINE, WHOLE
from corral.domain.ids import NodeId
from corral.modules.manifest.settings import settings_digest
from corral.testing.waiting import eventually
from corral.wire.features import FEATURES, support_of
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import (
    MODULE_INTENT_ACTIVE,
    MODULE_INTENT_INACTIVE,
    MODULE_INTENT_PAUSED,
    ModuleSetEntry,
    ModuleStateUpdate,
)
from corral.wire.v1.node_pb2 import Handshake

SCHEMA = {"type": "object", "properties": {"word": {"type": "string", "default": "hello"}}}
PUBLISHED = [feature for feature in FEATURES if feature != "modules"]


@pytest.fixture
async def controller(cluster):
    return await cluster.controller(link__heartbeat_seconds=30)


def has(archive, id="small", version="1.0.0", **fields):
    """What a node says that has this archive, active and with no settings."""
    defaults = {"intent": MODULE_INTENT_ACTIVE, "state": "ACTIVE", "settings_sha256": settings_digest({})}
    return ModuleSetEntry(module_id=id, sha256=digest(archive), version=version, **{**defaults, **fields})


async def act(controller, verb, body=None, id="small"):
    return await controller.call("POST", f"/api/v1/modules/{id}/{verb}", body)


async def test_a_late_joiner_is_told_the_whole_set_and_gets_what_it_lacks(controller, scratch):
    one, two = node_archive(scratch), node_archive(scratch, "other", config=SCHEMA)
    await install(controller, one)
    await install(controller, two)
    async with peer(controller, scratch, has(one)) as node:
        entries = {entry.module_id: entry for entry in node.ack.modules}
        assert {id: entry.sha256 for id, entry in entries.items()} == {
            "small": digest(one),
            "other": digest(two),
        }
        assert entries["other"].settings_sha256 == settings_digest({"word": "hello"})
        assert entries["small"].intent == MODULE_INTENT_ACTIVE
        sent = await node.order()
        assert (sent.module_id, sent.sha256, sent.version) == ("other", digest(two), "1.0.0")
        assert sent.jar_bytes == two.read_bytes()
        assert json.loads(sent.settings_json) == {"word": "hello"}
        assert not sent.is_upgrade


@pytest.mark.trap("T3")
async def test_a_package_for_nodes_alone_is_active_by_intent_and_runs_nowhere_here(controller, scratch):
    shown = await install(controller, node_archive(scratch))
    assert (shown["phase"], shown["intent"], shown["live"]) == ("ACTIVE", "active", None)
    engine = controller.app.role.term.modules.engine
    assert engine.scope("small") is None
    assert engine.live("small") is None
    assert (await act(controller, "deactivate"))["phase"] == "INSTALLED"
    assert (await act(controller, "activate"))["phase"] == "ACTIVE"


@pytest.mark.trap("T2")
async def test_what_was_uninstalled_while_a_node_was_away_is_taken_from_it_when_it_is_back(
    controller, scratch
):
    archive = node_archive(scratch)
    await install(controller, archive)
    async with peer(controller, scratch, has(archive)) as node:
        await node.tell(module_id="small", state="ACTIVE", sha256=digest(archive), version="1.0.0")
        await eventually(lambda: controller.app.role.term.state.module_node_states.find("n1/small"))
    await controller.call("DELETE", "/api/v1/modules/small")
    rows = controller.app.role.term.state.module_node_states
    assert rows.find("n1/small") is not None
    async with peer(controller, scratch, has(archive), spool_head=1) as node:
        assert list(node.ack.modules) == []
        gone = await node.order()
        assert type(gone).__name__ == "ModuleUninstall"
        assert gone.module_id == "small"
        await node.tell(module_id="small", state="UNLOADED", sequence=2)
        await eventually(lambda: rows.find("n1/small") is None)


async def test_verbs_settings_and_versions_reach_a_connected_node_once_each(controller, scratch):
    archive = node_archive(scratch / "a", config=SCHEMA)
    await install(controller, archive)
    mine = settings_digest({"word": "hello"})
    async with peer(controller, scratch, has(archive, settings_sha256=mine)) as node:
        await act(controller, "deactivate")
        assert (await node.order()).intent == MODULE_INTENT_INACTIVE
        await act(controller, "deactivate")  # nothing new
        await act(controller, "activate")
        assert (await node.order()).intent == MODULE_INTENT_ACTIVE
        await act(controller, "pause", {"reason": "later"})
        paused = await node.order()
        assert (paused.intent, paused.reason) == (MODULE_INTENT_PAUSED, "later")
        await act(controller, "resume")
        assert (await node.order()).reason == ""
        await controller.call("PUT", "/api/v1/modules/small/config", {"word": "x"})
        assert json.loads((await node.order()).settings_json) == {"word": "x"}
        await act(controller, "reload")
        again = await node.order()
        assert (again.reload, json.loads(again.settings_json)) == (True, {"word": "x"})
        newer = node_archive(scratch / "b", version="2.0.0", config=SCHEMA)
        await install(controller, newer)
        upgrade = await node.order()
        assert (upgrade.sha256, upgrade.version) == (digest(newer), "2.0.0")
        assert (upgrade.is_upgrade, upgrade.previous_version) == (True, "1.0.0")
        await controller.call("DELETE", "/api/v1/modules/small")
        orders = [await node.order(), await node.order()]
        assert [type(order).__name__ for order in orders] == ["ModuleControl", "ModuleUninstall"]


async def test_intent_and_settings_that_changed_while_a_node_was_away_are_told_at_its_handshake(
    controller, scratch
):
    one, two = node_archive(scratch, "one"), node_archive(scratch, "two", config=SCHEMA)
    three = node_archive(scratch, "three")
    for archive in (one, two, three):
        await install(controller, archive)
    await act(controller, "pause", {"reason": "later"}, id="one")
    async with peer(controller, scratch, has(one, "one"), has(two, "two"), has(three, "three")) as node:
        told = {order.module_id: order for order in [await node.order(), await node.order()]}
        assert (told["one"].intent, told["one"].reason) == (MODULE_INTENT_PAUSED, "later")
        assert json.loads(told["two"].settings_json) == {"word": "hello"}


async def test_an_archive_above_the_bound_is_offered_and_its_way_is_shown(controller, scratch):
    padding = random.Random(1).randbytes(INLINE + 1)
    small, large = node_archive(scratch, "a"), node_archive(scratch, "b", files={"pad": padding})
    async with peer(controller, scratch) as node:
        await install(controller, small)
        assert (await node.order()).jar_bytes
        await install(controller, large)
        offered = await node.order()
        assert not offered.jar_bytes
        size = large.stat().st_size
        assert (offered.offer.digest, offered.offer.size_bytes) == (digest(large), size)
        assert (await shown_at(controller, "b"))["progress"] == "offered"
        way = ModuleStateUpdate(module_id="b", fetched_bytes=12_000_000, size_bytes=40_000_000)
        before = controller.app.role.term.state.number
        await node.send(DaemonMessage(module_state_update=way))

        async def fetching():
            return (await shown_at(controller, "b"))["progress"] == "fetching 12 of 40 MB"

        await eventually(fetching)
        assert controller.app.role.term.state.number == before
        await node.tell(module_id="b", state="ACTIVE", sha256=digest(large), version="1.0.0")

        async def settled():
            seen = await shown_at(controller, "b")
            return seen["settled"] and seen["current"] and not seen["progress"]

        await eventually(settled)


async def shown_at(controller, id, node="n1"):
    shown = await controller.call("GET", f"/api/v1/modules/{id}/nodes")
    return next(each for each in shown["items"] if each["node"] == node)


async def test_a_published_daemon_gets_archives_in_frames_and_no_intents(controller, scratch):
    padding = random.Random(1).randbytes(INLINE + 1)
    archive = node_archive(scratch, "a", files={"pad": padding})
    await install(controller, archive)
    await install(controller, node_archive(scratch, "b"))
    await act(controller, "pause", {"reason": "later"}, id="b")
    async with peer(controller, scratch, features=PUBLISHED) as node:
        sent = await node.order()
        assert (sent.module_id, sent.jar_bytes) == ("a", archive.read_bytes())
        assert not sent.HasField("offer")
        state = ModuleStateUpdate(module_id="a", state="ACTIVE", updated_at_ms=5)
        await node.send(DaemonMessage(module_state_update=state))

        async def active():
            seen = await shown_at(controller, "a")
            return (seen["phase"], seen["version"], seen["current"]) == ("ACTIVE", "1.0.0", True)

        await eventually(active)
        await act(controller, "resume", id="b")
        assert (await node.order()).module_id == "b"
        await act(controller, "deactivate", id="a")
        gone = await node.order()
        assert (type(gone).__name__, gone.module_id) == ("ModuleUninstall", "a")
    await act(controller, "activate", id="a")
    async with peer(controller, scratch, features=PUBLISHED) as node:
        assert {(await node.order()).module_id for _ in range(2)} == {"a", "b"}


async def test_an_archive_that_fits_into_no_frame_is_not_sent_to_a_published_daemon(controller, scratch):
    padding = random.Random(1).randbytes(WHOLE + 1)
    await install(controller, node_archive(scratch, "a", files={"pad": padding}))
    await install(controller, node_archive(scratch, "b"))
    async with peer(controller, scratch, features=PUBLISHED) as node:
        assert (await node.order()).module_id == "b"
        seen = await shown_at(controller, "a")
        assert (seen["progress"], seen["settled"]) == ("too large for this daemon", True)


async def test_a_refused_archive_is_sent_again_only_when_somebody_recovers_it(controller, scratch):
    old = node_archive(scratch / "a")
    new = node_archive(scratch / "b", version="2.0.0")
    await install(controller, new)
    refused = has(old, refused_sha256=digest(new), last_error="no room")
    async with peer(controller, scratch, refused) as node:
        await act(controller, "pause", {"reason": "later"})
        held = await node.order()  # what runs there follows the intent, with the settings it has
        assert (held.intent, held.settings_json) == (MODULE_INTENT_PAUSED, b"")
        seen = await shown_at(controller, "small")
        assert (seen["refused"], seen["current"], seen["error"]) == (True, False, "no room")
        await act(controller, "resume")
        assert (await node.order()).intent == MODULE_INTENT_ACTIVE
        await act(controller, "recover")
        sent = await node.order()
        assert (sent.again, sent.sha256, sent.previous_version) == (True, digest(new), "1.0.0")
        wish = sent.recover_ms
    async with peer(controller, scratch, refused) as node:  # the frame was lost, for all that it says
        again = await node.order()
        assert (again.again, again.recover_ms) == (True, wish)
    refused.recover_ms = wish
    async with peer(controller, scratch, refused) as node:
        await install(controller, node_archive(scratch, "zoo"))
        assert (await node.order()).module_id == "zoo"


async def test_a_refusal_in_the_middle_of_a_session_keeps_new_settings_from_the_old_version(
    controller, scratch
):
    old, new = node_archive(scratch / "a"), node_archive(scratch / "b", version="2.0.0", config=SCHEMA)
    await install(controller, old)
    async with peer(controller, scratch, has(old)) as node:
        await install(controller, new)
        assert (await node.order()).sha256 == digest(new)
        told = {"sha256": digest(old), "version": "1.0.0", "refused_sha256": digest(new)}
        await node.tell(module_id="small", state="ACTIVE", last_error="no room", **told)

        async def refused():
            return (await shown_at(controller, "small"))["refused"]

        await eventually(refused)
        await controller.call("PUT", "/api/v1/modules/small/config", {"word": "x"})
        await act(controller, "deactivate")
        assert (await node.order()).settings_json == b""


async def test_an_intent_that_went_with_an_archive_which_a_node_refuses_is_for_what_runs_there(
    controller, scratch
):
    old, new = node_archive(scratch / "a"), node_archive(scratch / "b", version="2.0.0")
    await install(controller, new)
    async with peer(controller, scratch, has(old, intent=MODULE_INTENT_INACTIVE)) as node:
        assert (await node.order()).intent == MODULE_INTENT_ACTIVE
        told = {"sha256": digest(old), "version": "1.0.0", "refused_sha256": digest(new)}
        await node.tell(module_id="small", state="INSTALLED", intent=MODULE_INTENT_INACTIVE, **told)
        order = await node.order()
        assert type(order).__name__ == "ModuleControl"
        assert (order.intent, order.settings_json) == (MODULE_INTENT_ACTIVE, b"")


async def test_a_reload_that_went_with_an_archive_which_a_node_refuses_is_for_what_runs_there(
    controller, scratch
):
    old, new = node_archive(scratch / "a"), node_archive(scratch / "b", version="2.0.0")
    await install(controller, old)
    await act(controller, "reload")
    await install(controller, new)
    async with peer(controller, scratch, has(old, reload_ms=0, recover_ms=0)) as node:
        sent = await node.order()
        assert (sent.sha256, sent.reload_ms > 0) == (digest(new), True)
        said = {"sha256": digest(old), "version": "1.0.0", "refused_sha256": digest(new), "recover_ms": 0}
        await node.tell(module_id="small", state="ACTIVE", last_error="no room", reload_ms=0, **said)
        order = await node.order()
        assert (order.reload, order.reload_ms, order.settings_json) == (True, sent.reload_ms, b"")
        await node.tell(module_id="small", state="ACTIVE", reload_ms=sent.reload_ms, **said)

        async def nothing_owed():
            seen = await shown_at(controller, "small")
            return seen["settled"] and not seen["pending"]

        await eventually(nothing_owed)
        await act(controller, "deactivate")
        assert (await node.order()).intent == MODULE_INTENT_INACTIVE


async def test_a_reload_is_later_than_what_a_node_knows_of_whatever_clock_and_store_say(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    ahead = int(time.time() * 1000) + 3_600_000
    async with peer(controller, scratch, has(archive, reload_ms=ahead, recover_ms=0)) as node:

        async def known():
            return (await shown_at(controller, "small"))["phase"] == "ACTIVE"

        await eventually(known)
        await act(controller, "reload")
        order = await node.order()
        assert (order.reload, order.reload_ms) == (True, ahead + 1)
        assert (await shown_at(controller, "small"))["pending"] == ["reload"]


async def test_recover_is_for_one_node_or_all_and_remembered_for_those_that_are_away(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    failed = has(archive, state="FAILED", reason="hook_overrun")
    with pytest.raises(CommandRefused) as caught:
        await act(controller, "recover")
    assert caught.value.status == 409
    async with peer(controller, scratch, failed) as n1, peer(controller, scratch, failed, node="n2") as n2:

        async def both():
            shown = await controller.call("GET", "/api/v1/modules/small")
            return [each["phase"] for each in shown["nodes"]] == ["FAILED", "FAILED"]

        await eventually(both)
        await act(controller, "recover?node=n2")
        assert (await n2.order()).recover
        with pytest.raises(CommandRefused) as caught:
            await act(controller, "recover?node=nobody")
        assert caught.value.code == "NOT_FOUND"
        await n2.hang_up()
        await eventually(lambda: not controller.app.role.term.node_modules.connected(NodeId("n2")))
        await act(controller, "recover?node=n2")
        assert (await shown_at(controller, "small", "n2"))["pending"] == ["recover"]
        assert (await shown_at(controller, "small", "n1"))["pending"] == []
        await act(controller, "recover")
        assert (await n1.order()).recover
    async with peer(controller, scratch, failed, node="n2") as n2:
        assert (await n2.order()).recover
        back = {"sha256": digest(archive), "version": "1.0.0"}
        await n2.tell(module_id="small", state="ACTIVE", from_state="WAITING", **back)

        async def active():
            return (await shown_at(controller, "small", "n2"))["phase"] == "ACTIVE"

        await eventually(active)
    async with peer(controller, scratch, has(archive), node="n2", spool_head=1) as n2:
        await act(controller, "deactivate")
        assert not (await n2.order()).recover
    audited = (await controller.call("GET", "/api/v1/audit"))["items"]
    recovered = [entry["after"] for entry in audited if entry["action"] == "modules.recover"]
    assert recovered.count({"node": "n2"}) == 2


@pytest.mark.trap("T15")
async def test_every_order_carries_the_epoch_of_its_controller(controller, scratch):
    async with peer(controller, scratch) as node:
        await install(controller, node_archive(scratch))
        message = await node.next_of(frozenset({"module_install"}))
        assert message.epoch == controller.app.role.term.epoch > 0


@pytest.mark.trap("T40")
async def test_the_late_end_of_an_old_session_takes_nothing_from_the_new_one(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    async with peer(controller, scratch) as old:
        await old.order()
        term = controller.app.role.term
        session = term.sessions.find(NodeId("n1"))
        async with peer(controller, scratch, has(archive)) as new:
            await eventually(lambda: session.over.is_set())
            term.node_modules.left(session)  # and once more, late
            await act(controller, "deactivate")
            assert (await new.order()).intent == MODULE_INTENT_INACTIVE
            assert term.node_modules.connected(NodeId("n1"))


class DeafLink:
    """A session that nobody reads from, or that takes everything at once."""

    def __init__(self, number, *, deaf, takes=True):
        self._takes = takes
        self.facts = Facts(number)
        self.outbox = Waiting(10_000_000 if deaf else 0)
        self.over = asyncio.Event()
        self.sent = []

    def send(self, message, /):
        self.sent.append(message)
        return self._takes

    def report(self, error, /, *, context):
        raise AssertionError(error)


class Waiting:
    def __init__(self, size):
        self.waiting_bytes = size

    def __len__(self):
        return 0

    def replace(self, key, message, /):
        return True


class Facts:
    def __init__(self, number):
        self.id = f"ses-{number}"
        self.node_id = NodeId(f"node-{number}")
        self.supports = support_of(FEATURES)


async def test_a_change_for_two_hundred_sessions_neither_stops_the_loop_nor_waits_for_the_deaf(
    controller, scratch
):
    traffic = controller.app.role.term.node_modules
    links = [DeafLink(number, deaf=number % 10 == 0) for number in range(200)]
    hearing = [link for link in links if not link.outbox.waiting_bytes]
    for link in links:
        traffic.joined(link, Handshake(features=FEATURES))
    sent = [0]

    async def count_in_every_turn():
        while True:
            await asyncio.sleep(0)
            sent.append(sum(len(link.sent) for link in links))

    watching = asyncio.create_task(count_in_every_turn())
    padding = random.Random(1).randbytes(INLINE - 2_000)
    await install(controller, node_archive(scratch, files={"pad": padding}))
    await eventually(lambda: all(link.sent for link in hearing))
    watching.cancel()
    assert {len(link.sent) for link in hearing} == {1}
    in_a_turn = [after - before for before, after in itertools.pairwise(sent)]
    assert max(in_a_turn) <= 5, "many frames are made and sent before the loop serves anybody else"
    assert not any(link.sent for link in links if link not in hearing)
    for link in links:
        traffic.left(link)


async def test_a_session_whose_stream_is_over_holds_up_nobody_until_it_is_seen_off(controller, scratch):
    traffic = controller.app.role.term.node_modules
    gone, other = DeafLink(1, deaf=False, takes=False), DeafLink(2, deaf=False)
    for link in (gone, other):
        traffic.joined(link, Handshake(features=FEATURES))
    await install(controller, node_archive(scratch))
    await eventually(lambda: other.sent)
    await act(controller, "deactivate")
    await eventually(lambda: len(other.sent) == 2)
    assert len(gone.sent) == 1
    for link in (gone, other):
        traffic.left(link)
