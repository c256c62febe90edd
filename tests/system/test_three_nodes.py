"""A fleet of three real daemons: what is placed where under load, beside a crash loop, on full nodes, and while its
documents change."""

from __future__ import annotations

import asyncio
import collections
import contextlib

import pytest

from corral.cli.failure import CommandRefused
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from tests.system.estate import Estate

pytestmark = pytest.mark.system

SLEEP = ["sleep", "86400"]
NODES = ("n1", "n2", "n3")
LIVE = {"SCHEDULED", "PREPARING", "STARTING", "RUNNING", "STOPPING", "OFFLINE"}


class Fleet:
    """A controller, three daemons, and words for what tests ask of them."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate

    async def group(self, name: str, **fields) -> None:
        document = {
            "name": name,
            "command": SLEEP,
            "min_alive_ms": 0,
            "stop": [{"signal": "SIGKILL"}],
            **fields,
        }
        await self.estate.call("POST", "/api/v1/groups", document)

    async def instances(self, group: str) -> list[dict]:
        page = await self.estate.call("GET", f"/api/v1/instances?group={group}&limit=500")
        return [each for each in page["items"] if each["state"] in LIVE]

    async def running(self, group: str, count: int) -> list[dict]:
        seen: list[dict] = []

        async def there():
            seen[:] = await self.instances(group)
            return [each["state"] for each in seen] == ["RUNNING"] * count

        await eventually(there, deadline=90, state=lambda: [(e["id"], e["state"], e["reason"]) for e in seen])
        return seen

    async def by_node(self, group: str) -> collections.Counter[str]:
        return collections.Counter(each["node"] for each in await self.instances(group))

    async def why(self, group: str) -> dict:
        return await self.estate.call("GET", f"/api/v1/groups/{group}/why")

    async def reason(self, group: str, part: str) -> None:
        async def there():
            shown = await self.estate.call("GET", f"/api/v1/groups/{group}")
            return part in shown["status"]["reason"]

        await eventually(there, deadline=60)


@contextlib.asynccontextmanager
async def fleet_of_three(tmp_path):
    async with ProcessCluster(tmp_path) as processes:
        estate = Estate(processes, tmp_path)
        await estate.controller()
        await asyncio.gather(*(estate.daemon(node) for node in NODES))
        for node, zone in zip(NODES, ("a", "a", "b"), strict=True):
            await estate.wait_for_node(node, "ONLINE")
            settings = {"memory_mb": 1000, "labels": {"zone": zone}}
            await estate.call("PATCH", f"/api/v1/nodes/{node}", settings)
        yield Fleet(estate)


@pytest.fixture
async def fleet(tmp_path):
    async with fleet_of_three(tmp_path) as fleet:
        yield fleet


@pytest.mark.trap("T21")
async def test_fifty_starts_at_once_are_spread_and_no_promise_is_made_twice(fleet):
    await fleet.group("burst", memory_mb=50, ports={"primary": {"range": [31000, 31099]}})

    async def start():
        return await fleet.estate.call("POST", "/api/v1/instances", {"group": "burst"})

    await asyncio.gather(*(start() for _ in range(50)))
    found = await fleet.running("burst", 50)
    by_node = collections.Counter(each["node"] for each in found)
    assert max(by_node.values()) - min(by_node.values()) <= 1, by_node
    ports = [(each["node"], each["port"]) for each in found]
    assert len(ports) == len(set(ports))
    with pytest.raises(CommandRefused) as caught:
        await asyncio.gather(*(start() for _ in range(20)))
    assert caught.value.code == "NO_CAPACITY"
    for node in NODES:
        shown = await fleet.estate.call("GET", f"/api/v1/nodes/{node}")
        assert (await fleet.by_node("burst"))[node] * 50 <= shown["memory_mb"]


@pytest.mark.trap("T22")
async def test_a_crash_loop_beside_healthy_groups_is_paused_and_touches_none(fleet):
    await fleet.group("healthy", min=6)
    before = {each["id"]: each["pid"] for each in await fleet.running("healthy", 6)}
    await fleet.group(
        "looping", command=["false"], min=2, min_alive_ms=1000, restart={"attempts": 0},
        crash_loop={"failures": 3, "within_seconds": 300, "pause_seconds": 600},
    )  # fmt: skip
    await fleet.reason("looping", "paused as crash-looping")
    why = await fleet.why("looping")
    assert any(each["rule"] == "crash.pause" for each in why["decisions"])
    assert {each["id"]: each["pid"] for each in await fleet.instances("healthy")} == before
    crashes = await fleet.estate.call("GET", "/api/v1/instances?group=looping&limit=500")
    assert len(crashes["items"]) <= 6


@pytest.mark.trap("T27")
async def test_a_group_that_found_no_room_starts_as_soon_as_some_is_free(fleet):
    await fleet.group("large", min=3, memory_mb=900)
    assert await fleet.by_node("large") == dict.fromkeys(NODES, 1) or await fleet.running("large", 3)
    await fleet.group("next", min=2, memory_mb=500)
    await fleet.reason("next", "NO_CAPACITY")
    why = await fleet.why("next")
    refused = next(each for each in why["decisions"] if each["rule"] == "place.refuse")
    assert {each["code"] for each in refused["rejected"]} == {"MEMORY"}
    assert all("lacks" in each["reason"] for each in refused["rejected"])
    await fleet.estate.call("PATCH", "/api/v1/groups/large", {"min": 1})
    await fleet.estate.call("POST", "/api/v1/groups/large/scale", {"count": 1})
    await fleet.running("large", 1)
    await fleet.running("next", 2)


async def test_documents_edited_under_load_take_effect_and_lose_nothing(fleet):
    await asyncio.gather(*(fleet.group(f"g{number}", min=1, memory_mb=20) for number in range(6)))

    async def edit(number: int) -> None:
        for count in (3, 0, 2, 4):
            await fleet.estate.call("PATCH", f"/api/v1/groups/g{number}", {"min": count})
            await fleet.estate.call("PATCH", f"/api/v1/groups/g{number}", {"labels": {"turn": str(count)}})

    await asyncio.gather(*(edit(number) for number in range(6)))
    for number in range(6):
        found = await fleet.running(f"g{number}", 4)
        assert len({each["id"] for each in found}) == 4
    by_node = sum([await fleet.by_node(f"g{number}") for number in range(6)], collections.Counter())
    assert max(by_node.values()) - min(by_node.values()) <= 6, by_node


async def test_spread_over_zones_affinity_and_dependencies_hold_on_real_nodes(fleet):
    await fleet.group("zoned", min=4, spread=[{"by": "zone", "max_skew": 1}])
    found = await fleet.running("zoned", 4)
    zones = collections.Counter("b" if each["node"] == "n3" else "a" for each in found)
    assert zones == {"a": 2, "b": 2}
    await fleet.group("db", nodes=["n2"])
    await fleet.group(
        "web", min=2, depends_on=[{"group": "db"}], affinity=[{"group": "db", "required": True}]
    )
    await fleet.reason("web", "waits for 'db': 0 of 1 ready")
    await fleet.estate.call("PATCH", "/api/v1/groups/db", {"min": 1})
    assert {each["node"] for each in await fleet.running("web", 2)} == {"n2"}
