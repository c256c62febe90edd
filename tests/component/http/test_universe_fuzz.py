"""Bodies that nobody foresaw, on every path of Universe: a clear refusal, and nothing is changed."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest
from http_rig import Rig
from test_universe_configuration_routes import FULL

from corral.controller.http.messages.universe_errors import is_universe_path
from corral.controller.http.routes import ROUTES

ODD: list[Any] = [
    None, True, 0, -1, 1.5, 2**70, 1e300, "", "x" * 5000, "\0", "\ud800", "•••", "../../x", "a\nb", [], {}, [[[]]],
    {"a": {"b": None}}, ["x"] * 2000, {f"k{n}": "v" for n in range(2000)},
]  # fmt: skip
WORDS = [
    "name",
    "command",
    "state",
    "configurationName",
    "hostAddress",
    "pattern",
    "storage",
    "colour",
    *FULL,
]
BYTES = [b"", b"{", b"[]", b"\xff\xfe", b"{}{}", b'{"a":1,"a":2}', b"[" * 2000, b"nul", b'"' + b"x" * 100_000]


def bodies(chance: random.Random) -> list[bytes]:
    made = [dict.fromkeys(chance.sample(WORDS, 3), chance.choice(ODD)) for _ in range(12)]
    made += [{**FULL, chance.choice(list(FULL)): chance.choice(ODD)} for _ in range(12)]
    nested = chance.choice(["allOf", "oneInGroups", "onTemplatePasteOverridePresentFiles"])
    made += [{**FULL, "templateInstallationConfig": {nested: value}} for value in ODD]
    return [*BYTES, *(json.dumps(each).encode() for each in made)]


@pytest.mark.system
async def test_odd_bodies_are_refused_with_a_text_and_change_nothing(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance("lobby")
    await rig.template("lobby/base")
    await rig.template("plugins/a")
    chance = random.Random(7)
    sent = 0
    for route in ROUTES:
        if not is_universe_path(route.path) or route.body is None:
            continue
        path = route.path.replace("{id}", record.id).replace(
            "{name}", "base" if "{group}" in route.path else "odd"
        )
        path = path.replace("{group}", "lobby")
        for body in bodies(chance):
            answer = await client.request(
                route.method, path, content=body, headers={"content-type": "application/json"}
            )
            sent += 1
            assert answer.status_code < 500 or answer.status_code == 503, (
                route.name,
                body[:200],
                answer.text,
            )
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error"}, (route.name, body[:200], answer.text)
                assert "odd" not in [each.record.spec.name for each in rig.state.groups]
            elif "configurations" in path:
                assert (await client.delete(path)).status_code == 204
    assert sent > 300
    assert (await client.get("/health")).status_code == 200
