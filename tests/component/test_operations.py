"""What an operator meets over time: restarts, retention, removed nodes, tokens that name a command."""

from __future__ import annotations

import asyncio
import shlex

import pytest

from corral.controller.state.collections import group_decisions, instance_commands
from corral.controller.term.housekeeping import Housekeeping
from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.node_states import NodeState
from corral.domain.records import CommandRecord
from corral.testing.waiting import eventually


async def housekeeping(controller) -> Housekeeping:
    term = controller.app.role.term
    return Housekeeping(
        config=controller.app.config,
        store=controller.app.store,
        ledger=term.ledger,
        user_sessions=term.http.user_sessions,
        epoch=term.epoch,
        clock=controller.app.clock,
    )


async def test_events_are_listed_from_the_oldest_that_is_kept_also_after_a_restart(cluster):
    controller = await cluster.controller(retention__events=5)
    for number in range(20):
        await controller.call("POST", "/api/v1/tokens", {"name": f"t{number}", "role": "VIEWER"})
    keeper = await housekeeping(controller)
    await keeper._retention.apply()
    await controller.app.stop()
    again = await cluster.controller(retention__events=5)
    listed = await again.call("GET", "/api/v1/events")
    subjects = [event["type"] for event in listed["items"]]
    assert subjects[-1] == "LEADER_CHANGED"
    assert 5 <= len(subjects) <= 6, "the new term may have trimmed already"
    newest = await again.call("GET", "/api/v1/events?newest=true&limit=2")
    assert newest["items"] == listed["items"][-2:]
    rare = await again.call("GET", "/api/v1/events?newest=true&types=LEADER_CHANGED")
    assert [event["type"] for event in rare["items"]] == ["LEADER_CHANGED"]


async def test_a_removed_nodes_log_and_a_removed_instances_commands_go_with_it(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    other = await cluster.daemon("n2", controller)
    for log in (daemon.log, other.log):
        log.write("hello")

    async def logged(node):
        return (await controller.call("GET", f"/api/v1/logs?source=node:{node}"))["items"]

    await eventually(lambda: logged("n1"))
    await eventually(lambda: logged("n2"))
    await controller.call("POST", "/api/v1/nodes/n1/revoke", {})
    await eventually(lambda: controller.app.role.term.sessions.find("n1") is None)
    await controller.call("DELETE", "/api/v1/nodes/n1")
    sent = CommandRecord(line="list", by="token:x", incarnation=1024, node="n1")
    await controller.app.role.term.ledger.commit(instance_commands("lobby-1").append(sent))
    keeper = await housekeeping(controller)
    await keeper.forget_journals()
    journals = await controller.app.store.reads.journals("log:node:")
    assert list(journals) == ["log:node:n2"]
    assert list(await controller.app.store.reads.journals("commands:")) == [], (
        "nor are lines of an instance that is gone"
    )


async def test_decisions_about_what_is_gone_are_kept_of_a_thousand_at_most(cluster):
    controller = await cluster.controller()
    keeper = await housekeeping(controller)
    ledger = controller.app.role.term.ledger
    await controller.call("POST", "/api/v1/groups", {"name": "there", "command": ["true"]})
    decision = DecisionRecord(
        id="dec-1",
        cause="test",
        kind=DecisionKind.START,
        subject="it",
        reason="",
        epoch=1,
        at=controller.app.clock.now(),
    )
    for first in range(0, 1010, 10):
        names = [f"g{number}" for number in range(first, first + 10)]
        await ledger.commit(*(group_decisions(name).append(decision) for name in names))
    await ledger.commit(group_decisions("there").append(decision))
    await keeper.forget_journals()
    journals = await controller.app.store.reads.journals("decisions:group/")
    assert len(journals) == 1001
    assert "decisions:group/there" in journals
    assert {f"decisions:group/g{number}" for number in range(10, 1010)} <= set(journals), "the oldest went"


async def test_the_command_of_a_join_token_is_all_that_a_host_needs(cluster, scratch):
    controller = await cluster.controller()
    answer = await controller.call("POST", "/api/v1/nodes/join-tokens", {"node_id": "web-1"})
    words = shlex.split(answer["command"])
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert words[:2] == ["corral", "daemon"]
    assert options["--node-id"] == "web-1"
    assert options["--controller"] == controller.grpc_address
    assert options["--data"].startswith("/")
    daemon = await cluster.daemon(
        "web-1", None, controllers=[options["--controller"]], join=options["--join"]
    )
    await controller.wait_for_node("web-1", NodeState.ONLINE)
    await daemon.app.stop()


async def test_a_wildcard_address_is_advertised_by_the_hosts_name(cluster):
    controller = await cluster.controller(grpc__listen="0.0.0.0:0", http__listen="0.0.0.0:0")
    for address in (controller.grpc_address, controller.bootstrap_address, controller.app.own.http):
        assert not address.startswith("0.0.0.0")


@pytest.mark.parametrize("label", ["my zone", "", "-x", "a" * 64])
async def test_a_label_that_the_controller_would_refuse_is_refused_by_the_configuration(cluster, label):
    with pytest.raises(Exception, match="label"):
        await cluster.daemon("n1", None, controllers=["127.0.0.1:1"], node__labels={label: "x"})


async def test_many_nodes_and_calls_at_once_leave_memory_equal_to_the_store(cluster):
    controller = await cluster.controller()
    await asyncio.gather(*(cluster.daemon(f"n{number}", controller) for number in range(8)))

    async def fiddle(number: int) -> None:
        for verb in ("cordon", "uncordon", "cordon"):
            await controller.call("POST", f"/api/v1/nodes/n{number}/{verb}", {})

    await asyncio.gather(*(fiddle(number) for number in range(8)))
    state = controller.app.role.term.state
    snapshot = await controller.app.store.reads.snapshot(state.collections)
    held = {
        (mirror.collection.name, id): stored.revision
        for mirror in state._mirrors.values()
        for id, stored in mirror.items()
    }
    assert held == {(document.collection, document.id): document.revision for document in snapshot.documents}
