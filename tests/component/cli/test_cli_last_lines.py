"""How the console of a run ends whose crash paused its group: in the waits for groups, and in `why`."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from stand_in_controller import StandIn

Corral = Callable[..., subprocess.CompletedProcess[str]]

_TAIL = [f"line {number}" for number in range(12)] + ["config error: no such map winter"]
_ENDS = "\n".join(["its console ends with:", *(f"  | {line}" for line in _TAIL[-10:]), ""])
_PAUSED = {"reason": "3 failures within 300 s, the last: tee-3: exited with code 127", "crash": "tee-3.9"}
_WHY: dict[str, Any] = {
    "subject": "group/tee",
    "summary": "group 'tee' wants 1 instance and has 0; it is crash-looping",
    "now": [{"topic": "crash", "subject": "group/tee", "reason": "the last crash", "lines": _TAIL[-10:]}],
}


@pytest.fixture
def paused(server: StandIn) -> StandIn:
    """Group `tee`, which is paused. A run of a former document crashed later than the one that began the pause."""
    status = {"wanted": 1, "instances": 0, "ready": 0, "paused": _PAUSED}
    group = {"name": "tee", "status": status}
    server.answers["GET", "/api/v1/groups/tee"] = (200, group)
    server.answers["POST", "/api/v1/groups/tee/scale"] = (200, group)
    applied = {"name": "tee", "action": "changed", "fields": [], "path": "tee.yaml"}
    server.answers["POST", "/api/v1/apply"] = (
        200,
        {"groups": [applied], "summary": "1 group, 1 changed", "dry_run": False, "deleted": 0},
    )
    server.answers["GET", "/api/v1/groups/tee/why"] = (200, _WHY)
    server.answers["GET", "/api/v1/crashes"] = (200, {"items": [{"id": "tee-1.8"}], "next": None})
    for crash, tail in (("tee-1.8", ["of the former document"]), ("tee-3.9", _TAIL)):
        server.answers["GET", f"/api/v1/crashes/{crash}"] = (200, {"id": crash, "tail": tail})
    return server


def test_a_wait_for_a_group_prints_how_the_console_of_the_crash_ends(paused: StandIn, corral: Corral) -> None:
    done = corral("group", "scale", "tee", "1", "--wait")
    assert (done.returncode, f"\n{_ENDS}" in done.stderr) == (1, True), done.stderr


def test_a_wait_for_applied_groups_prints_it_too(
    paused: StandIn, corral: Corral, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "tee.json"
    file.write_text('{"name": "tee"}')
    done = corral("apply", "-f", str(file), "--wait", "-o", "json")
    assert (done.returncode, f"\n  {_ENDS}" in done.stderr) == (1, True), done.stderr
    [shown] = json.loads(done.stdout)["wait"]["groups"]
    assert (shown["state"], shown["lines"]) == ("PAUSED", _TAIL[-10:])


def test_why_prints_it_below_the_crash(paused: StandIn, corral: Corral) -> None:
    done = corral("why", "group/tee")
    assert done.stdout == f"{_WHY['summary']}\n  the last crash\n  {_ENDS}"
