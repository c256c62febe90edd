"""Groups of a store that was written before instances beyond the desired number were stopped."""

from __future__ import annotations

import httpx
import msgspec
from http_rig import Rig

from corral.controller.instances.group_format_upgrade import upgrade_groups
from corral.controller.reconcile.apply_plan import Wake, keep_groups
from corral.controller.state.collections import CLUSTER, GROUPS, ONLY
from corral.domain.groups.scaling_spec import MaintenanceSpec, ScalingSpec
from corral.domain.instance_states import InstanceState
from corral.domain.planning.planner import plan

FORMER = (
    b'{"applied_sha256":"","created_at":"2026-01-01T00:00:00Z","deleting":false,"failed_on":{},"failures":[],'
    b'"hold":null,"owner":"","pause_ends":null,"paused":null,"reason":"","request":"","spec":{"abstract":false,'
    b'"affinity":[],"args":[],"artifact":null,"category":"","clean_exit_codes":[],"command":["serve"],'
    b'"config_format":"","console_mb":256,"cpu":0.0,"crash_keep_seconds":3600,"crash_loop":{"failures":3,'
    b'"max_pause_seconds":3600,"pause_seconds":60,"within_seconds":300},"depends_on":[],"disk_mb":0,"env":{},'
    b'"extensions":[],"fallback_group":"","host_address":"","isolate":"auto","jvm":null,"labels":{},'
    b'"line_buffered":false,"max":8,"max_lifetime_seconds":0,"max_players":0,"memory_mb":0,"merge":[],"min":0,'
    b'"min_alive_ms":1500,"name":"lobby","node_capabilities":[],"node_labels":{},"nodes":[],"parent":"",'
    b'"patches":[],"pids":0,"ports":{},"priority":50,"probes":[],"properties":{},"protected_paths":[],"restart":'
    b'{"attempts":1,"delay_ms":0,"interval_seconds":300,"max_delay_ms":60000,"on":"always"},"run_as":"",'
    b'"runtime":"process","scaling":{"mode":"MANUAL"},"spread":[{"by":"node","max_skew":null,"weight":30}],'
    b'"startup_timeout_seconds":60,"static":false,"static_names":[],"stdin":"fifo","stop":[{"command":"stop",'
    b'"signal":null,"wait_seconds":30.0},{"command":null,"signal":"SIGTERM","wait_seconds":10.0}],'
    b'"strict_variables":false,"substitute":[],"template_selection":{"all_in_groups":[],"all_of":[],'
    b'"one_in_groups":[],"one_of":[]},"templates":[],"tty":false,"variable_types":{},"variables":{},"warm":0,'
    b'"warmup":{"paths":[]}},"strikes":0,"target":0,"updated_at":"2026-01-01T00:00:00Z","written":{"command":'
    b'["serve"],"max":8,"name":"lobby"}}'
)
"""The document of the group 'lobby' as the version before wrote it."""


async def as_before(rig: Rig) -> None:
    """Three instances that were started by hand, and what the version before stored of their group."""
    for _ in range(3):
        await rig.instance()
    group, cluster = rig.state.groups.require("lobby"), rig.state.cluster.require(ONLY)
    put = GROUPS.put("lobby", group.record, expect=group.revision)
    former = msgspec.structs.replace(cluster.record, group_format=2)
    await rig.ledger.commit(
        msgspec.structs.replace(put, body=FORMER), CLUSTER.put(ONLY, former, expect=cluster.revision)
    )


async def test_a_group_from_before_is_read_with_the_defaults_of_what_it_lacks(rig: Rig) -> None:
    await as_before(rig)
    record = rig.state.groups.require("lobby").record
    assert (record.target, record.floor, record.last_scale) == (0, None, None)
    assert (record.spec.scaling, record.spec.schedules) == (ScalingSpec(), ())
    assert record.spec.maintenance == MaintenanceSpec()


async def test_nothing_that_runs_is_stopped_after_the_upgrade(client: httpx.AsyncClient, rig: Rig) -> None:
    await as_before(rig)
    stops = plan(rig.instances.signals.view(rig.instances.workspace(cause="before")), ["lobby"]).decisions
    assert {each.instance for each in stops} == {"lobby-1", "lobby-2", "lobby-3"}, "without the upgrade"

    await upgrade_groups(rig.ledger)
    assert (await client.get("/api/v1/groups/lobby")).json()["status"]["target"] == 3
    ws = rig.instances.workspace(cause="the first pass")
    keep_groups(ws, {"lobby": Wake(cause="the first pass")}, signals=rig.instances.signals.now())
    assert not ws.steps()
    assert [entry["after"] for entry in await rig.audits("groups.scale")] == [{"target": 3}]


async def test_a_number_that_was_lowered_after_the_upgrade_stays(rig: Rig) -> None:
    await as_before(rig)
    await upgrade_groups(rig.ledger)
    async with rig.client() as client:
        assert (await client.post("/api/v1/groups/lobby/scale", json={"count": 1})).status_code == 200
    await upgrade_groups(rig.ledger)
    assert rig.state.groups.require("lobby").record.target == 1


async def test_warm_and_ended_instances_are_not_counted(rig: Rig) -> None:
    await as_before(rig)
    await rig.report("lobby-1", warm=True)
    await rig.report("lobby-2", state=InstanceState.STOPPED)
    await upgrade_groups(rig.ledger)
    assert rig.state.groups.require("lobby").record.target == 1
