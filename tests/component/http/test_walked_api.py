"""A fuzzer walks along the links of the description, on a cluster with a node where servers really run: what one answer has
made, the next request reads, changes, stops or deletes. Every answer is as described."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import pathlib
import warnings
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.core.failures import FailureGroup
from test_fuzzed_api import CHECKS

from corral.controller.http.pipeline.route_table import Socket, Stream
from corral.controller.http.routes import ROUTES
from corral.testing.cluster import CHEAP_HASHES, LocalCluster, LocalController
from corral.testing.waiting import eventually

WALKS = 100
STEPS = 12
SERVER = ["sh", "-c", "echo ready > state.txt; while read line; do echo got $line; done"]
GROUP = {"command": SERVER, "memory_mb": 16, "stop": [{"signal": "SIGKILL", "wait_seconds": 1}]}
LEFT_OUT = {
    *(route.path for route in ROUTES if isinstance(route, Stream | Socket)),
    "/api/v1/cluster/raise-epoch",
    "/api/v1/cluster/repair-sequence",
    "/api/v1/cluster/shutdown",
    "/api/v1/nodes/{id}/revoke",
    "/api/v1/nodes/{id}/shutdown",
}
"""What answers for ever, and what ends the term or the node: the walk would be over."""
AS_WRITTEN = {
    "POST /api/v1/groups": lambda number: {"name": f"walk-{number}", **GROUP},
    "POST /api/v1/instances": lambda number: {"group": "lobby"},
    "POST /api/v1/users": lambda number: {
        "name": f"walker-{number}",
        "password": f"a long password {number}",
    },
    "POST /api/v1/roles": lambda number: {"name": f"role-{number}", "permissions": ["groups.read"]},
    "POST /api/v1/tokens": lambda number: {"name": f"token-{number}", "role": "VIEWER"},
    "POST /api/v1/instances/{id}/files/mkdir": lambda number: {"path": f"made/{number}"},
    "POST /api/v1/instances/{id}/command": lambda number: {"command": f"hello {number}"},
}
"""Bodies that a person would write, for every second request: what is made of chance alone is mostly refused."""

PLAIN = {"NewGroup": ("name", "command", "min", "max", "memory_mb"), "CreateJoinToken": ("labels",)}
"""The fields of bodies that name nothing else: the fuzzer begins no walk with one that may name what does not exist."""

WALKED = {
    "GET /api/v1/groups/{name}",
    "GET /api/v1/instances/{id}",
    "GET /api/v1/users/{name}",
    "POST /api/v1/groups",
    "POST /api/v1/groups/{name}/deploy",
    "POST /api/v1/instances",
    "POST /api/v1/instances/{id}/files/mkdir",
    "POST /api/v1/instances/{id}/stop",
    "POST /api/v1/nodes/join-tokens",
    "POST /api/v1/roles",
    "POST /api/v1/tokens",
    "POST /api/v1/users",
}
"""What has to have been done, for the walk to tell anything."""


def walk(controller: LocalController, described: dict[str, Any]) -> dict[str, collections.Counter[int]]:
    """The statuses of the answers, by operation."""
    schema = schemathesis.openapi.from_dict(described)
    schema.config.generation.update(modes=[schemathesis.GenerationMode.POSITIVE])
    schema.config.phases.stateful.inference.algorithms = []  # the links of the document alone
    numbers = itertools.count()
    faults: list[str] = []
    seen: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)

    class Walk(schema.as_state_machine()):  # type: ignore[misc]  # made at run time
        def before_call(self, case: schemathesis.Case) -> None:
            number = next(numbers)
            if number % 2:
                case.headers = {}  # keys and revisions of chance are those of other requests
            if number % 2 and case.operation.label in AS_WRITTEN:
                case.body = AS_WRITTEN[case.operation.label](number)
                case.query = {}
            if case.operation.label == "PUT /api/v1/instances/{id}/files/content" and number % 2:
                case.query = {"path": f"written-{number}.txt"}

        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {controller.admin_token}"}
            return {"base_url": controller.url, "headers": headers, "timeout": 30}

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            seen[case.operation.label][response.status_code] += 1
            try:
                case.validate_response(response, checks=CHECKS)
            except (
                FailureGroup
            ) as group:  # raised, it would end this walk and be tried again on another state
                faults.extend(f"{case.operation.label}: {error}" for error in group.exceptions)

    bounded = hypothesis.settings(
        max_examples=4,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fuzzer's own machinery
        for number in range(WALKS):
            with contextlib.suppress(
                FlakyStrategyDefinition
            ):  # the server is not as it was before the last walk
                run_state_machine_as_test(hypothesis.seed(number)(Walk), settings=bounded)
    assert not faults, "\n\n".join(faults)
    return seen


async def linked(controller: LocalController) -> dict[str, Any]:
    """The description, of what links come from or lead to alone."""
    described: dict[str, Any] = await controller.call("GET", "/api/v1/openapi.json")
    targets = {link["operationId"] for link in described["components"]["links"].values()}
    kept: dict[str, dict[str, Any]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            leads_on = any("links" in answer for answer in operation["responses"].values())
            if path not in LEFT_OUT and (leads_on or operation["operationId"] in targets):
                kept.setdefault(path, {})[method] = operation
    known = {operation["operationId"] for methods in kept.values() for operation in methods.values()}
    for methods in kept.values():
        for operation in methods.values():
            for answer in operation["responses"].values():
                links = answer.get("links", {})
                answer |= {"links": {name: links[name] for name in links if name in known}} if links else {}
    for name, fields in PLAIN.items():
        schema = described["components"]["schemas"][name]
        schema["properties"] = {field: schema["properties"][field] for field in fields}
    return {**described, "paths": kept}


@pytest.mark.system
@pytest.mark.timeout(900)
async def test_a_walk_along_the_links_finds_every_answer_as_described(scratch: pathlib.Path) -> None:
    async with LocalCluster(scratch) as cluster:
        controller = await cluster.controller(hash_cost=CHEAP_HASHES)
        await cluster.daemon("web-1", controller)
        await controller.call("POST", "/api/v1/groups", {"name": "lobby", "min": 1, **GROUP})

        async def running() -> bool:
            items = (await controller.call("GET", "/api/v1/instances"))["items"]
            return any(each["state"] == "RUNNING" for each in items)

        await eventually(running, deadline=60)
        seen = await asyncio.to_thread(walk, controller, await linked(controller))
        made = {label for label, counts in seen.items() if counts[200] or counts[201] or counts[204]}
        assert made >= WALKED, sorted(WALKED - made)
