"""Modules that register, import, subscribe to or store what they may not."""

from __future__ import annotations

import pathlib
from typing import Any, Final

import pytest
from hostile_rig import code_of, pen
from hostile_zoo import beast_archive, harmless_archive

from corral.testing.api_calls import create_group
from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system

STORED: Final = {
    "storage": {"documents": True, "keyValue": True, "limits": {"documentsMb": 1, "keyValueMb": 1}}
}
OTHERS: Final = {"capabilities": {"provides": [{"id": "zoo.other", "version": "1.0.0"}]}}
BOTH: Final = {
    "capabilities": {
        "provides": [{"id": "zoo.beast", "version": "1.0.0"}, {"id": "zoo.other", "version": "1.0.0"}]
    }
}


def specimen(id: str, place: str, code: str, reason: str, said: str, **manifest: Any) -> Any:
    return pytest.param(place, code, reason, said, manifest, id=id)


REFUSED = [
    specimen("imports the host", "import", "import corral.controller", "import_failed", "corral.sdk alone"),
    specimen("imports our errors", "import", "from corral import errors", "import_failed", "errors"),
    specimen("imports what is installed", "import", "import httpx", "import_failed", "put 'httpx' there"),
    specimen("imports another module", "import", "import lamb_module", "import_failed", "lamb_module"),
    specimen("imports late", "on_start", "import numpy", "hook_failed:on_start", "put 'numpy' there"),
    specimen(
        "a route twice",
        "register_routes",
        "routes.get('/ping', self.ping)",
        "bad_registration:refused",
        "GET /ping is registered twice",
    ),
    specimen(
        "a route twice behind the back of the SDK",
        "register_routes",
        "routes._routes.append(routes._routes[0])",
        "bad_registration:route:GET /ping",
        "registered twice",
    ),
    specimen(
        "a route of the host's",
        "register_routes",
        "routes.post('/recover', self.ping)",
        "bad_registration:route:POST /recover",
        "the host's own",
    ),
    specimen(
        "a permission there is not",
        "register_routes",
        "routes.get('/x', self.ping, permission='everything')",
        "bad_registration:route:GET /x",
        "unknown permission 'everything'",
    ),
    specimen(
        "a command of another module",
        "register_commands",
        "commands.add('zoo lamb', self.command)",
        "bad_registration:command:zoo lamb",
        "is taken already",
    ),
    specimen(
        "provides what it does not declare",
        "on_load",
        "",
        "bad_registration:capability:zoo.beast",
        "does not declare it",
        **OTHERS,
    ),
    specimen(
        "declares what it does not provide",
        "on_load",
        "",
        "bad_registration:capability:zoo.other",
        "gives no binding for it",
        **BOTH,
    ),
    specimen(
        "a provider without the methods",
        "capability_handles",
        "return [CapabilityBinding(CAPABILITY, Greeting, object)]",
        "bad_registration:refused",
        "greet",
    ),
    specimen(
        "subscribes to everything many times",
        "on_load",
        "for _ in range(100): ctx.run(ctx.events.subscribe([], self.hear))",
        "hook_failed:on_load",
        "64 subscriptions",
    ),
    specimen(
        "subscribes to what it did not list",
        "on_load",
        "ctx.run(ctx.events.subscribe('TOKEN_CREATED', self.hear))",
        "hook_failed:on_load",
        "TOKEN_CREATED",
        events={"subscribes": ["GROUP_CREATED"]},
    ),
    specimen(
        "tasks without end",
        "on_start",
        "for _ in range(1000): ctx.run(ctx.scheduler.every(3600, self.beat))",
        "hook_failed:on_start",
        "256 tasks",
    ),
    specimen(
        "publishes as somebody else",
        "on_start",
        "ctx.run(ctx.events.publish('GROUP_DELETED', {}))",
        "hook_failed:on_start",
        "may publish nothing",
    ),
    specimen(
        "storage it did not ask for",
        "on_start",
        "ctx.require_document_storage()",
        "hook_failed:on_start",
        "storage.documents: true",
    ),
    specimen(
        "documents past its quota",
        "on_start",
        "docs = ctx.require_document_storage().collection('d', dict)\n"
        "for n in range(100): ctx.run(docs.insert({'x': 'y' * 100_000}))",
        "hook_failed:on_start",
        "StorageQuotaExceeded",
        **STORED,
    ),
    specimen(
        "keys past its quota",
        "on_start",
        "kv = ctx.require_key_value_storage()\nfor n in range(100): ctx.run(kv.put(str(n), 'y' * 50_000))",
        "hook_failed:on_start",
        "StorageQuotaExceeded",
        **STORED,
    ),
]


@pytest.mark.parametrize(("place", "code", "reason", "said", "manifest"), REFUSED)
async def test_what_may_not_be_fails_the_module_and_says_why(
    cluster: LocalCluster,
    scratch: pathlib.Path,
    place: str,
    code: str,
    reason: str,
    said: str,
    manifest: dict[str, Any],
) -> None:
    async with pen(cluster, scratch) as made:
        assert (await made.install(harmless_archive(made.scratch, "lamb")))["phase"] == "ACTIVE"
        told = await made.install(beast_archive(made.scratch, place, code, id="beast", **manifest))
        assert (told["phase"], told["reason"]) == ("FAILED", reason), told["failure"]
        assert said in told["failure"]["message"] + told["failure"]["traceback"]
        assert await made.held("beast") == []
        assert await made.standing("lamb") == ("ACTIVE", "")
        assert await made.act("beast", "recover") == ("FAILED", reason)
        await made.uninstall("beast")
        assert (await made.ask("GET", "/lamb/ping")).is_success


async def test_who_subscribes_to_everything_and_is_slow_holds_up_nobody(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """An event at a time, until it is given up: so many at once may take so much longer."""
    code = "async def drag(event): await asyncio.sleep(3600)\nctx.run(ctx.events.subscribe([], drag))"
    async with pen(cluster, scratch) as made:
        await made.install(beast_archive(made.scratch, "on_load", code, id="beast", hook_ms=2000))
        overruns = -1

        async def given_up() -> bool:
            nonlocal overruns
            found = await made.info("beast")
            if found["live"] is not None and found["live"]["overruns"] > overruns:
                overruns = found["live"]["overruns"]
                await create_group(made.controller, f"g{overruns}", ["serve"], min=0)
            return bool(found["phase"] == "FAILED")

        await eventually(given_up, deadline=60)
        assert (await made.standing("beast"))[1].startswith("hook_overrun:event:")
        assert await made.held("beast") == []
        await made.uninstall("beast")


DEEP: Final = """
import sys
sys.setrecursionlimit(100_000)
refused = []
for levels in (33, 500, 971, 972, 973, 974, 2000):
    deep = []
    for _ in range(levels - 1):
        deep = [deep]
    try:
        await ctx.events.publish("X", {"a": deep})
    except BaseException as error:
        refused.append(levels)
await ctx.events.publish("X", {"refused": refused})
"""


@pytest.mark.trap("T81")
async def test_who_publishes_what_no_encoder_can_carry_is_refused_and_the_controller_goes_on(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """At every start anew, as a module that is wanted active does."""
    async with pen(cluster, scratch) as made:
        archive = beast_archive(
            made.scratch, "on_start", DEEP, id="beast", on_loop=True, events={"publishes": ["X"]}
        )
        assert (await made.install(archive))["phase"] == "ACTIVE"
        assert await made.act("beast", "deactivate") == ("INSTALLED", "deactivated")
        assert await made.act("beast", "activate") == ("ACTIVE", "")
        listed = await made.controller.call("GET", "/api/v1/events?types=MODULE_EVENT")
        told = [event["data"]["data"] for event in listed["items"]]
        assert told == [{"refused": [33, 500, 971, 972, 973, 974, 2000]}] * 2
        await made.uninstall("beast")


async def test_an_answer_that_is_too_large_costs_that_answer_alone(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    async with pen(cluster, scratch) as made:
        large = "return Response(b'x' * (5 << 20))"
        archive = beast_archive(made.scratch, "route", large, id="beast", route_ms=20_000)
        assert (await made.install(archive))["phase"] == "ACTIVE"
        answer = await made.ask("GET", "/beast/evil")
        assert (answer.status_code, code_of(answer)) == (502, "MODULE_FAILED")
        assert (await made.ask("GET", "/beast/ping")).is_success
        await made.uninstall("beast")


@pytest.mark.trap("T42")
async def test_a_pattern_without_end_in_settings_or_in_a_query_is_answered(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """The same pattern freezes Python's own matcher for years."""
    schema = {"type": "object", "properties": {"word": {"type": "string", "pattern": "^(a+)+$"}}}
    code = (
        "from corral.sdk import F\n"
        "docs = ctx.require_document_storage().collection('d', dict)\n"
        "await docs.insert({'word': 'a' * 60 + 'b'}, id='x')\n"
        "found = await docs.find(F.word.matches('^(a+)+$'))\n"
        "assert found == [], found\n"
    )
    async with pen(cluster, scratch) as made:
        archive = beast_archive(
            made.scratch,
            "on_start",
            code,
            id="beast",
            on_loop=True,
            config=schema,
            storage={"documents": True},
        )
        told = await made.install(archive)
        assert told["phase"] == "ACTIVE", told["failure"]
        answer = await made.ask("PUT", "/beast/config", {"word": "a" * 5000 + "b"})
        assert (answer.status_code, code_of(answer)) == (422, "SETTINGS_INVALID")
        assert (await made.ask("PUT", "/beast/config", {"word": "a" * 5000})).is_success
        await made.uninstall("beast")
