"""Deployments that begin by themselves (`update.auto`)."""

from __future__ import annotations

from typing import Any

import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments
from corral.controller.state.collections import GROUPS, TEMPLATES
from corral.domain.groups.update_spec import AutoUpdate


class AutoWorld(DeployedWorld):
    """Group `lobby` with a template, deployed by itself."""

    def __init__(self, *auto: AutoUpdate, **fields: Any) -> None:
        self._templated = False
        super().__init__(2, update={"auto": auto}, **fields)
        self.new_template("one")
        self.edit(templates=["base"])
        self.live_on(60)

    def new_template(self, *hashes: str) -> None:
        known = self.state.templates.revision("base") if self._templated else None
        if known is not None:
            self.apply([TEMPLATES.delete("base", expect=known)])
        self.add_template("base", *hashes)
        self._templated = True

    def count(self) -> int:
        return len(self.state.deployments.of_group("lobby"))


def test_a_changed_document_is_deployed_after_five_quiet_seconds():
    world = AutoWorld(AutoUpdate.DOCUMENT)
    assert (world.count(), world.state_now) == (1, S.COMPLETED)  # the template was added to the document
    world.edit(env={"A": "1"})
    world.live_on(4)
    world.edit(env={"A": "2"})
    world.live_on(4)
    assert world.count() == 1
    world.live_on(2)
    assert world.count() == 2
    record = world.deployment
    assert (record.trigger, record.by, record.reason) == ("document", "update.auto", "changed: document")
    world.until(S.COMPLETED)
    made = next(
        each for each in world.made() if each.id == world.state.deployments.require(record.id).record.decision
    )
    assert made.causes


def test_a_changed_template_is_deployed_where_that_is_asked_for():
    world = AutoWorld(AutoUpdate.TEMPLATE)
    assert world.count() == 0  # the change of the document is not
    world.do_as(deployments.deploy_group, "lobby", by="ada")
    world.until(S.COMPLETED)
    world.new_template("one", "two")
    world.live_on(6)
    assert (world.count(), world.deployment.trigger) == (2, "template")
    world.until(S.COMPLETED)


def test_a_changed_template_is_left_alone_where_only_documents_count():
    world = AutoWorld(AutoUpdate.DOCUMENT)
    world.new_template("one", "two")
    world.live_on(60)
    assert world.count() == 1


def test_what_counts_at_once_is_no_reason_for_a_deployment():
    world = AutoWorld(AutoUpdate.DOCUMENT)
    world.edit(min=3)
    world.live_on(60)
    assert world.count() == 1


def test_what_was_taken_back_is_not_deployed_again_until_it_changes():
    world = AutoWorld(AutoUpdate.DOCUMENT)
    world.edit(env={"A": "1"})
    world.live_on(6)
    world.settle()
    target = world.deployment.target
    for node in sorted(world.connected):
        world.obey(node)
    world.crash(world.there(target)[0], restarted=False)
    world.until(S.ROLLED_BACK)
    world.change_leader(told=True)
    world.live_on(300)
    assert (world.count(), world.group().pinned_revision) == (2, world.deployment.stable)
    world.edit(env={"A": "3"})
    world.live_on(6)
    assert (world.count(), world.group().pinned_revision) == (3, 0)
    world.until(S.COMPLETED)


@pytest.mark.parametrize("restarts", [0, 1, deployments.DEPLOYMENTS_KEPT + 1])
@pytest.mark.parametrize("then", ["another leader", "another number"])
def test_what_an_operator_has_taken_back_is_not_deployed_again_until_it_changes(restarts, then):
    world = AutoWorld(AutoUpdate.DOCUMENT)
    world.edit(env={"A": "bad"})
    world.live_on(10)
    world.until(S.COMPLETED)
    world.do_as(deployments.roll_back_deployment, world.deployment.id, by="ada")
    world.until(S.COMPLETED)
    for _ in range(restarts):
        world.do_as(deployments.restart_revision, "lobby", by="ada")
        world.until(S.COMPLETED)
    last, pin = world.deployment.id, world.group().pinned_revision
    if then == "another leader":
        world.change_leader(told=True)
    else:
        world.edit(min=3)
    world.live_on(60)
    assert (world.deployment.id, world.group().pinned_revision) == (last, pin)
    world.edit(env={"A": "good"})
    world.live_on(10)
    assert (world.deployment.trigger, world.group().pinned_revision) == ("document", 0)


def test_another_leader_deploys_what_its_predecessor_had_no_time_for():
    world = AutoWorld(AutoUpdate.DOCUMENT)
    world.edit(env={"A": "1"})
    world.change_leader(told=True)
    world.live_on(10)
    assert world.count() == 2


def test_a_deployment_that_cannot_be_recorded_delays_no_group():
    world = AutoWorld(AutoUpdate.DOCUMENT)

    async def commit(*steps: Any) -> None:
        world.state.quarantine.check(steps)
        world.apply(steps)

    world.reconciler._auto._ledger.commit = commit
    world.edit(env={"A": "1"})
    world.state.quarantine.add(GROUPS.name, "lobby", 1, ValueError("torn"))
    world.create("other", min=1)
    world.live_on(30)
    assert world.serving("other") == 1
    assert world.count() == 1
    assert not world.reconciler._auto._due
