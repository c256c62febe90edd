"""The four tests that come with every lifecycle table, and the tables' own promises."""

from __future__ import annotations

import itertools

import pytest

from corral.domain.groups.deployments import DEPLOYMENT_LIFECYCLE, DeploymentState, DeploymentTrigger
from corral.domain.instance_states import INSTANCE_LIFECYCLE, InstanceState, InstanceTrigger
from corral.domain.lifecycle import Lifecycle
from corral.domain.modules.phases import MODULE_LIFECYCLE, ModulePhase, ModuleTrigger
from corral.domain.node_states import (
    ADMISSION_LIFECYCLE,
    NODE_LIFECYCLE,
    AdmissionTrigger,
    NodeState,
    NodeTrigger,
)
from corral.errors import Code, IllegalTransition

TABLES = {
    "node": (NODE_LIFECYCLE, NodeTrigger),
    "admission": (ADMISSION_LIFECYCLE, AdmissionTrigger),
    "instance": (INSTANCE_LIFECYCLE, InstanceTrigger),
    "module": (MODULE_LIFECYCLE, ModuleTrigger),
    "deployment": (DEPLOYMENT_LIFECYCLE, DeploymentTrigger),
}
STOPS = {
    "node": {NodeTrigger.REVOKE},
    "admission": {AdmissionTrigger.UNCORDON, AdmissionTrigger.UNDRAIN},
    "instance": {InstanceTrigger.STOP},
    "module": {ModuleTrigger.STOP, ModuleTrigger.STOPPED, ModuleTrigger.UNLOAD},
    "deployment": {DeploymentTrigger.CANCEL},
}


@pytest.fixture(params=TABLES)
def named(request):
    return request.param, *TABLES[request.param]


def test_every_pair_that_is_not_listed_raises_with_the_story(named):
    _, table, triggers = named
    for phase, trigger in itertools.product(table.phases, triggers):
        if table.allows(phase, trigger):
            continue
        with pytest.raises(IllegalTransition) as caught:
            table.step("subject 'x'", phase, trigger, story=["first this", "then that"])
        assert caught.value.code is Code.ILLEGAL_TRANSITION
        assert "subject 'x'" in caught.value.message
        assert "first this; then that" in caught.value.message


def test_terminal_phases_have_no_exit(named):
    _, table, triggers = named
    for phase in table.terminal:
        assert not any(table.allows(phase, trigger) for trigger in triggers)


def test_every_phase_is_reachable(named):
    _, table, _triggers = named
    assert table.reachable() == set(table.phases)


def test_every_live_phase_can_be_stopped(named):
    name, table, _triggers = named
    for phase in set(table.phases) - table.terminal:
        direct = any(table.allows(phase, trigger) for trigger in STOPS[name])
        rests = phase in (NodeState.REVOKED, *ADMISSION_LIFECYCLE.phases)
        assert direct or rests, f"{phase} cannot be stopped"


def test_every_trigger_is_of_use(named):
    _, table, triggers = named
    assert {trigger for _, trigger in table.transitions} == set(triggers)


def test_the_diagram_names_every_transition(named):
    _, table, _triggers = named
    diagram = table.mermaid()
    for (source, trigger), target in table.transitions.items():
        assert f"{source.name} --> {target.name}: {trigger.name.lower()}" in diagram


def test_a_table_with_a_forgotten_dead_end_does_not_construct():
    with pytest.raises(ValueError, match="without exit"):
        Lifecycle(
            name="broken",
            initial=ModulePhase.INSTALLED,
            terminal=(),
            transitions={(ModulePhase.INSTALLED, ModuleTrigger.UNLOAD): ModulePhase.UNLOADED},
        )


def test_a_lost_node_assumes_nothing_dead_and_takes_whatever_is_reported():
    live = set(INSTANCE_LIFECYCLE.phases) - INSTANCE_LIFECYCLE.terminal - {InstanceState.OFFLINE}
    for state in live:
        assert INSTANCE_LIFECYCLE.step("i", state, InstanceTrigger.UNWATCHED) is InstanceState.OFFLINE
    reachable = INSTANCE_LIFECYCLE.reachable(InstanceState.OFFLINE)
    assert reachable >= live - {InstanceState.SCHEDULED}


def test_failed_modules_are_left_only_by_an_operator():
    leaving = {trigger for phase, trigger in MODULE_LIFECYCLE.transitions if phase is ModulePhase.FAILED}
    assert leaving == {ModuleTrigger.RECOVER, ModuleTrigger.UNLOAD}


def test_a_revoked_node_comes_back_only_by_enrolling_again():
    leaving = {trigger for phase, trigger in NODE_LIFECYCLE.transitions if phase is NodeState.REVOKED}
    assert leaving == {NodeTrigger.ENROL_AGAIN}


def test_a_deployment_that_goes_back_neither_goes_on_nor_goes_back_again():
    back = DeploymentState.ROLLING_BACK
    onwards = {
        DeploymentTrigger.CANARY,
        DeploymentTrigger.WATCH,
        DeploymentTrigger.ROLL,
        DeploymentTrigger.ROLL_BACK,
    }
    assert not any(DEPLOYMENT_LIFECYCLE.allows(back, trigger) for trigger in onwards)
