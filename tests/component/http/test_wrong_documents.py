"""Documents that could never work: each is refused with the path of the value and the next step, and nothing changes,
whether it is new, replaces one or patches one."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from http_rig import Rig

GROUPS = "/api/v1/groups"
RIGHT: dict[str, Any] = {"name": "lobby", "command": ["serve"]}
FALL: dict[str, Any] = {"name": "falls", "command": ["serve"], "fallback_group": "lobby"}
BASE: dict[str, Any] = {"name": "base", "abstract": True, "max": 5}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"nmae": "x"}, "nmae"),
    ({"min": -1}, "min"),
    ({"min": "two"}, "min"),
    ({"min": 2, "max": 1}, "max"),
    ({"memory_mb": 1.5}, "memory_mb"),
    ({"command": []}, "command"),
    ({"command": ["serve"] * 1001}, "command"),
    ({"command": "serve --all"}, "command"),
    ({"command": ["serve"], "jvm": {"jar": "a.jar"}}, "jvm"),
    ({"env": {"LD_PRELOAD": "x"}}, "env/LD_PRELOAD"),
    ({"env": {"PORT": 5}}, "env/PORT"),
    ({"runtime": "doker"}, "runtime"),
    ({"ports": {"primary": {"range": [2, 1]}}}, "ports/primary/range"),
    ({"ports": {"primary": {"port": 70000}}}, "ports/primary/port"),
    ({"ports": {"a": {"of": "b"}, "b": {"of": "a"}}}, "ports/a/of"),
    ({"stop": [{"signal": "SIGTREM"}]}, "stop/0/signal"),
    ({"stop": [{"command": "stop", "signal": "SIGTERM"}]}, "stop/0"),
    ({"restart": {"on": "allways"}}, "restart/on"),
    ({"restart": {"attemps": 1}}, "restart/attemps"),
    ({"probes": [{"kind": "pign"}]}, "probes/0/kind"),
    ({"templates": ["No Name"]}, "templates/0"),
    ({"templates": ["missing"]}, "templates/0"),
    ({"substitute": ["../*.yml"]}, "substitute/0"),
    ({"patches": [{"file": "a.bin", "path": "x", "value": 1}]}, "patches/0/format"),
    ({"artifact": {"url": "https://files.example/a.jar"}}, "artifact/sha256"),
    ({"artifact": {"platform": "paper", "version": "1.0"}}, "artifact"),
    ({"variables": {"PORT": "5"}}, "variables/PORT"),
    ({"variables": {"A": "x"}, "variable_types": {"A": {"type": "int"}}}, "variables/A"),
    ({"nodes": ["Not A Node"]}, "nodes/0"),
    ({"node_capabilities": ["memory-limt"]}, "node_capabilities/0"),
    ({"affinity": [{"label": "disk"}]}, "affinity/0/label"),
    ({"affinity": [{"group": "db", "weight": 200}]}, "affinity/0/weight"),
    ({"spread": [{"by": "zone", "max_skew": 0}]}, "spread/0/max_skew"),
    ({"priority": 101}, "priority"),
    ({"warm": 1, "static": True}, "warm"),
    ({"static_names": ["main", "main"]}, "static_names/1"),
    ({"static_names": ["falls-1"]}, "static_names/0"),
    ({"depends_on": [{"group": "fals"}]}, "depends_on/0/group"),
    ({"depends_on": [{"group": "base"}]}, "depends_on/0/group"),
    ({"fallback_group": "falls"}, "fallback_group"),
    ({"parent": "bsae"}, "parent"),
    ({"parent": "base", "min": 6}, "max"),
    ({"parent": "lobby"}, "parent"),
    ({"scaling": {"mode": "DYNAMIC"}}, "scaling/mode"),
    ({"scaling": {"up_threshold": 0}}, "scaling/up_threshold"),
    ({"isolate": "uid", "run_as": "games"}, "isolate"),
]


def test_there_are_at_least_forty() -> None:
    assert len(WRONG) >= 40


async def test_a_wrong_document_is_named_by_its_path_with_the_next_step_and_changes_nothing(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for document in (BASE, RIGHT, FALL):
        made = await client.post(GROUPS, json=document)
        assert made.status_code == 201, made.text
    before = rig.state.number
    for wrong, field in WRONG:
        put = await client.put(f"{GROUPS}/lobby/document", json={**RIGHT, **wrong})
        patched = await client.patch(f"{GROUPS}/lobby", json=wrong)
        for answer in (put, patched):
            error = answer.json()["error"]
            assert 400 <= answer.status_code < 500, answer.text
            told = error["field"], bool(error.get("hint")), bool(error["message"])
            assert told == (field, True, True), (wrong, error)
            assert len(answer.text) < 4000
        assert rig.state.number == before, "nothing was stored"


async def test_a_wrong_document_makes_no_group(client: httpx.AsyncClient, rig: Rig) -> None:
    assert (await client.post(GROUPS, json=BASE)).status_code == 201
    before = rig.state.number
    for wrong, field in WRONG:
        if field in ("static_names/0", "fallback_group"):  # these need the group beside it
            continue
        created = await client.post(GROUPS, json={**RIGHT, **wrong})
        assert (created.status_code >= 400, created.json()["error"]["field"]) == (True, field), created.text
        assert rig.state.number == before, wrong


@pytest.mark.parametrize("body", [b"[\x03", b'["\xff"]', b'{"name": 1, "command": ['])
async def test_a_body_that_is_of_the_wrong_type_before_it_breaks_off_is_refused(
    client: httpx.AsyncClient, body: bytes
) -> None:
    answer = await client.post(GROUPS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] in ("INVALID_FIELD", "INVALID_JSON")
