"""No text about a run that leaves the node holds a secret that the run was given, whole or in part."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from supervised_node import SupervisedNode, base_plan

from corral.domain.groups.plans import Plan
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.spec import VariableSpec, VariableType
from corral.testing import workloads
from corral.testing.waiting import eventually

SECRET = "TOPSECRETVALUE-0123456789"
NEVER = ProbeSpec(kind=ProbeKind.LOG, pattern="never said")


def with_secret(node: SupervisedNode, command: tuple[str, ...], **fields: Any) -> Plan:
    """A plan of a workload that has the secret in `PW`."""
    keep(node, SECRET)
    return base_plan(
        command,
        **{
            "env": {"PW": "%PW%"},
            "variables": {"PW": "file://pw"},
            "variable_types": {"PW": VariableSpec(type=VariableType.SECRET)},
            **fields,
        },
    )


def keep(node: SupervisedNode, value: str) -> None:
    (node.data / "secrets").mkdir(exist_ok=True)
    (node.data / "secrets" / "pw").write_text(value)


async def leaving(node: SupervisedNode) -> bytes:
    """Everything that was said about runs, to be kept or not."""
    said = [*await node.reports(), *node.sent, *node.answers]
    return b"\n".join(message.SerializeToString() for message in said)


def probe(command: str) -> ProbeSpec:
    return ProbeSpec(kind=ProbeKind.COMMAND, command=("/bin/sh", "-c", command), interval_ms=200)


SEEN_BY_PROBES = {
    "line": ("echo connecting with $PW; exec sleep 60", NEVER),
    "line-cut-within-the-secret": (f"echo {'x' * 108} $PW; exec sleep 60", NEVER),
    "command": ("exec sleep 60", probe("echo $PW; exit 1")),
    "command-cut-within-the-secret": ("exec sleep 60", probe(f"echo $PW {'x' * 108}; exit 1")),
}


async def test_what_probes_saw_is_told_without_secrets(node: SupervisedNode) -> None:
    for name, (said, probed) in SEEN_BY_PROBES.items():
        plan = with_secret(node, workloads.shell(said), probes=(probed,), startup_timeout_seconds=1)
        await node.begin(name, plan)
    outcomes = {name: (await node.settled(name)).outcome for name in SEEN_BY_PROBES}
    told = await leaving(node)
    for name, outcome in outcomes.items():
        assert outcome is not None
        assert "was not ready" in outcome.reason + outcome.summary, name
        for part in (SECRET[:6], SECRET[-6:]):
            assert part not in outcome.reason + outcome.summary, name
    assert b"was not ready" in told
    for part in (SECRET[:6], SECRET[-6:]):
        assert part.encode() not in told


async def test_a_reason_is_masked_whatever_words_get_into_it(node: SupervisedNode) -> None:
    assert (await node.begin("one", with_secret(node, workloads.silent()))).accepted
    await node.stop("one", reason=f"somebody wrote {SECRET} here")
    await node.settled("one")
    told = await leaving(node)
    assert b"somebody wrote %PW% here" in told
    assert SECRET.encode() not in told


@pytest.mark.parametrize("env", ["%PW%", "postgres://game:%PW%@%NODE_ID%/world"])
async def test_a_secret_that_was_changed_while_no_daemon_ran_is_still_masked(
    node: SupervisedNode, env: str
) -> None:
    command = workloads.shell('read go; echo "FATAL login with ${PW#*game:} refused"; echo "$PW"; exit 3')
    assert (await node.begin("one", with_secret(node, command, env={"PW": env}))).accepted
    await node.until("one", "RUNNING")
    keep(node, "ROTATEDVALUE")
    await node.reopen()
    await node.command("one", "go")
    await node.settled("one")
    tail = list((await node.crash("one")).log_tail)
    assert any("FATAL login with %PW%" in line for line in tail)
    assert SECRET.encode() not in await leaving(node)


async def test_last_lines_stay_behind_when_a_secret_was_changed_and_its_run_ended_while_no_daemon_ran(
    node: SupervisedNode, tmp_path: pathlib.Path
) -> None:
    go = tmp_path / "go"
    command = workloads.shell(
        f'until [ -e {go} ]; do sleep 0.05; done; echo "FATAL login with $PW refused"; exit 3'
    )
    assert (await node.begin("one", with_secret(node, command))).accepted
    await node.until("one", "RUNNING")
    pid = node.run("one").pid
    await node.close()
    keep(node, "ROTATEDVALUE")
    go.touch()
    await eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    await node.open()
    await node.settled("one")
    (line,) = (await node.crash("one")).log_tail
    assert line.startswith("(withheld: %PW% was changed while no daemon ran")
    assert SECRET.encode() not in await leaving(node)
