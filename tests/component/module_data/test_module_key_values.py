"""One suite for keys and values, over the store and over a real Valkey."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from data_rig import EXAMPLES, office_of
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import Code, Rejected
from corral.sdk.errors import QueryInvalid, Refused, StorageQuotaExceeded, StorageUnavailable
from corral.sdk.storage import ABSENT
from corral.testing.ports import free_range


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def keys_place(request, valkey):
    """A store, and the address of Valkey where that holds the keys."""
    store = request.getfixturevalue("postgres_store" if request.param == "postgres" else "sqlite_store")
    return store, valkey.url if request.param == "valkey" else ""


@pytest.fixture
async def keys_office(request, keys_place, clock):
    store, url = keys_place
    async with office_of(store, clock=clock, url=url, namespace=request.node.name) as office:
        yield office
        await office.data.drop_all("arena")


@pytest.fixture
def kv(keys_office):
    return keys_office.key_values()


class Session(msgspec.Struct):
    user: str
    token: bytes


async def test_a_value_comes_back_with_its_type(kv) -> None:
    assert await kv.get("x") is None
    await kv.put("x", Session("ada", b"\x00\xff"))
    assert await kv.get("x", Session) == Session("ada", b"\x00\xff")
    await kv.put("x", [1, "é", None, 2.5])
    assert await kv.get("x") == [1, "é", None, 2.5]
    assert await kv.delete("x") is True
    assert await kv.delete("x") is False
    assert await kv.get("x") is None


async def test_a_value_is_gone_when_its_time_has_come(kv, clock) -> None:
    await kv.put("short", 1, ttl=10)
    await kv.put("long", 1, ttl=1000)
    await kv.put("ever", 1)
    assert 9 < await kv.expires_in("short") <= 10
    assert await kv.expires_in("ever") is None
    clock.step(11)
    assert await kv.get("short") is None
    assert await kv.expires_in("short") is None
    assert [key async for key in kv.keys("")] == ["ever", "long"]
    assert await kv.delete("short") is False
    assert await kv.put_if_absent("short", 2) is True
    assert await kv.get("short") == 2
    assert await kv.expires_in("short") is None


async def test_a_value_can_be_given_another_time(kv, clock) -> None:
    assert await kv.expire("x", 5) is False
    await kv.put("x", 1)
    assert await kv.expire("x", 5) is True
    await kv.put("y", 1, ttl=5)
    assert await kv.expire("y", None) is True
    await kv.put("z", 1, ttl=5)
    await kv.put("z", 2)
    clock.step(6)
    assert await kv.get("x") is None
    assert await kv.expire("x", 5) is False
    assert await kv.get("y") == 1
    assert await kv.get("z") == 2


async def test_only_the_first_of_many_puts_where_there_was_none(kv) -> None:
    done = await asyncio.gather(*(kv.put_if_absent("lock", i, ttl=60) for i in range(20)))
    assert done.count(True) == 1
    assert await kv.get("lock") == done.index(True)


async def test_a_value_is_written_only_over_the_one_that_was_expected(kv, clock) -> None:
    assert await kv.compare_and_set("x", 1, 2) is False
    assert await kv.compare_and_set("x", ABSENT, {"b": 1, "a": 2}) is True
    assert await kv.compare_and_set("x", ABSENT, 2) is False
    assert await kv.compare_and_set("x", {"a": 2, "b": 1}, None) is True
    assert await kv.compare_and_set("x", None, 3, ttl=5) is True
    assert await kv.compare_and_set("x", 4, ABSENT) is False
    clock.step(6)
    assert await kv.compare_and_set("x", 3, 4) is False
    assert await kv.compare_and_set("x", ABSENT, ABSENT) is True
    await kv.put("x", 1)
    assert await kv.compare_and_set("x", ABSENT, ABSENT) is False
    assert await kv.compare_and_set("x", 1, ABSENT) is True
    assert [key async for key in kv.keys("")] == []


async def test_counting_loses_nothing(kv, clock) -> None:
    sums = await asyncio.gather(*(kv.increment("n") for _ in range(30)))
    assert sorted(sums) == list(range(1, 31))
    assert await kv.increment("n", -40) == -10
    assert await kv.get("n", int) == -10
    assert await kv.increment("day", ttl=10) == 1
    clock.step(6)
    assert await kv.increment("day", ttl=10) == 2
    clock.step(6)
    assert await kv.increment("day", ttl=10) == 1
    await kv.put("text", "x")
    with pytest.raises(QueryInvalid):
        await kv.increment("text")
    await kv.put("big", 2**63 - 1)
    with pytest.raises(QueryInvalid):
        await kv.increment("big")
    assert await kv.get("big") == 2**63 - 1


async def test_keys_are_listed_by_their_beginning_in_order(kv) -> None:
    names = ["a", "a:", "a:1", "a:2", "ab", "b", "é", "日本", "A", "a;", "z" * 200]
    for name in names:
        await kv.put(name, 1)
    assert [key async for key in kv.keys("")] == sorted(names)
    assert [key async for key in kv.keys("a")] == sorted(name for name in names if name.startswith("a"))
    assert [key async for key in kv.keys("a:")] == ["a:", "a:1", "a:2"]
    assert [key async for key in kv.keys("nothing")] == []


async def test_more_keys_than_one_page_are_listed(kv, clock) -> None:
    await asyncio.gather(*(kv.put(f"k{i:04}", i, ttl=5 if i % 10 == 0 else None) for i in range(1050)))
    clock.step(6)
    assert [key async for key in kv.keys("k")] == [f"k{i:04}" for i in range(1050) if i % 10]


async def test_storage_is_bounded_and_what_has_expired_makes_room(keys_office, clock) -> None:
    kv = keys_office.key_values(key_value_mb=1)
    await kv.put("old", b"x" * 400_000, ttl=10)
    await kv.put("stays", b"x" * 400_000)
    with pytest.raises(StorageQuotaExceeded):
        await kv.put("more", b"x" * 400_000)
    assert await kv.get("more") is None
    await kv.put("stays", b"y" * 400_000)
    clock.step(11)
    await kv.put("more", b"x" * 400_000)
    usage = await keys_office.data.usage("arena", 1)
    assert usage.keys == 2
    assert 800_000 < usage.key_value_bytes < 801_000


async def test_a_sweep_removes_what_has_expired(keys_office, clock) -> None:
    kv = keys_office.key_values()
    await asyncio.gather(*(kv.put(f"k{i}", i, ttl=5) for i in range(250)))
    await kv.put("stays", 1, ttl=100)
    clock.step(6)
    await keys_office.data.sweep({"arena": 1})
    usage = await keys_office.data.usage("arena", 1)
    assert usage.keys == 1
    assert not [key for key in await keys_office.rows("mod/arena/1/x") if "stays" not in key[1]]
    assert await kv.get("stays") == 1


async def test_what_cannot_be_a_key_or_a_value_is_refused(kv) -> None:
    for attempt in (
        kv.put("", 1),
        kv.put("x" * 201, 1),
        kv.put("a\nb", 1),
        kv.put("a", 1, ttl=0),
        kv.get("a\x00"),
    ):
        with pytest.raises(QueryInvalid):
            await attempt
    with pytest.raises(Refused) as refused:
        await kv.put("a", b"x" * 1_100_000)
    assert refused.value.code == "BODY_TOO_LARGE"
    assert await kv.get("a") is None


KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 3), st.sampled_from([None, 5, 20])),
    st.tuples(st.just("put_if_absent"), KEYS, st.integers(0, 3), st.sampled_from([None, 5])),
    st.tuples(st.just("cas"), KEYS, st.sampled_from([0, 1, "absent"]), st.sampled_from([0, 1, "absent"])),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("increment"), KEYS),
    st.tuples(st.just("expire"), KEYS, st.sampled_from([None, 5])),
    st.tuples(st.just("wait"), st.sampled_from([3, 10])),
)


@EXAMPLES
@given(steps=st.lists(STEPS, max_size=15))
async def test_all_adapters_do_what_a_dictionary_does(keys_office, clock, steps) -> None:
    await keys_office.data.drop_all("arena")
    kv = keys_office.key_values()
    model: dict[str, tuple[int, float | None]] = {}
    now = 0.0
    for step in steps:
        model = {key: entry for key, entry in model.items() if entry[1] is None or entry[1] > now}
        match step:
            case ("put", key, value, ttl):
                await kv.put(key, value, ttl=ttl)
                model[key] = (value, None if ttl is None else now + ttl)
            case ("put_if_absent", key, value, ttl):
                assert await kv.put_if_absent(key, value, ttl=ttl) == (key not in model)
                model.setdefault(key, (value, None if ttl is None else now + ttl))
            case ("cas", key, expected, value):
                there = model[key][0] if key in model else "absent"
                given = [ABSENT if each == "absent" else each for each in (expected, value)]
                assert await kv.compare_and_set(key, *given) == (there == expected)
                if there == expected:
                    model.pop(key, None)
                    if value != "absent":
                        model[key] = (value, None)
            case ("delete", key):
                assert await kv.delete(key) == (model.pop(key, None) is not None)
            case ("increment", key):
                value, ends = model.get(key, (0, None))
                assert await kv.increment(key) == value + 1
                model[key] = (value + 1, ends)
            case ("expire", key, ttl):
                assert await kv.expire(key, ttl) == (key in model)
                if key in model:
                    model[key] = (model[key][0], None if ttl is None else now + ttl)
            case ("wait", seconds):
                clock.step(seconds)
                now += seconds
    live = {key: entry for key, entry in model.items() if entry[1] is None or entry[1] > now}
    assert {key: await kv.get(key) async for key in kv.keys("")} == {
        key: entry[0] for key, entry in live.items()
    }
    await keys_office.data.sweep({"arena": 1})
    assert (await keys_office.data.usage("arena", 1)).keys == len(live)


async def test_a_valkey_that_is_not_there_is_said_to_be_unavailable(sqlite_store) -> None:
    url = f"valkey://127.0.0.1:{free_range(1)[0]}/0"
    async with office_of(sqlite_store, url=url) as office:
        with pytest.raises(StorageUnavailable) as refused:
            await office.key_values().put("a", 1)
        assert "modules.key_value.url" in str(refused.value)
        await office.documents().collection("things", dict).insert({})


@pytest.mark.system
async def test_a_valkey_that_hangs_costs_its_deadline_and_comes_back(sqlite_store, valkey) -> None:
    async with office_of(sqlite_store, url=valkey.url, namespace="hanging") as office:
        kv = office.key_values()
        await kv.put("a", 1)
        valkey.freeze()
        try:
            async with asyncio.timeout(30):
                with pytest.raises(StorageUnavailable):
                    await kv.get("a")
        finally:
            valkey.thaw()
        assert await kv.get("a") == 1
        await office.data.drop_all("arena")


async def test_clusters_that_share_a_valkey_do_not_meet(sqlite_store, valkey) -> None:
    async with office_of(sqlite_store, url=valkey.url, namespace="one") as office:
        await office.key_values().put("a", 1)
    async with office_of(sqlite_store, url=valkey.url, namespace="two") as office:
        assert await office.key_values().get("a") is None
        await office.data.drop_all("arena")
    async with office_of(sqlite_store, url=valkey.url, namespace="one") as office:
        assert await office.key_values().get("a") == 1
        await office.data.drop_all("arena")


async def test_an_address_nobody_could_use_is_refused_at_once(sqlite_store) -> None:
    with pytest.raises(Rejected) as refused:
        async with office_of(sqlite_store, url="http://example"):
            pass
    assert refused.value.code is Code.INVALID_CONFIG
