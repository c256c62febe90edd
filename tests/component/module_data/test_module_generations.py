"""Spaces of modules: kept apart, copied for upgrades, dropped, fenced."""

from __future__ import annotations

import contextlib

import pytest
from data_rig import office_of

from corral.controller.state.ledger import Ledger
from corral.errors import Code, Rejected
from corral.sdk.errors import HostError, Refused
from corral.sdk.filters import F
from corral.sdk.storage import Index
from corral.store.store_errors import Fenced


@pytest.fixture(params=["store", "valkey"])
async def both_kinds(request, store, clock, valkey):
    """Documents on either store, keys on the store or on Valkey."""
    url = valkey.url if request.param == "valkey" else ""
    async with office_of(store, clock=clock, url=url, namespace=request.node.name) as office:
        yield office
        for module in ("a", "a-b", "ab", "arena"):
            await office.data.drop_all(module)


async def _fill(office, module, generation=1):
    things = await office.documents(module, generation).create("things", dict, indexes=[Index("n")])
    await things.insert_many({"n": i, "of": module} for i in range(40))
    kv = office.key_values(module, generation)
    await kv.put("name", module)
    await kv.put("soon", module, ttl=1000)
    return things, kv


@pytest.mark.trap("T35")
async def test_dropping_one_module_never_touches_another_whose_name_begins_so(both_kinds) -> None:
    filled = {module: await _fill(both_kinds, module) for module in ("a", "a-b", "ab")}
    for number in (2, 10, 11):
        await _fill(both_kinds, "a-b", number)
    await both_kinds.data.drop("a-b", 1)
    assert await both_kinds.data.generations("a-b") == [2, 10, 11]
    await both_kinds.data.drop_all("a")
    assert await both_kinds.data.generations("a") == []
    assert await both_kinds.data.generations("ab") == [1]
    assert await filled["a"][0].find() == []
    assert await filled["a"][1].get("name") is None
    for things, kv in (filled["ab"], await _handles(both_kinds, "a-b", 10)):
        assert await things.count(F.n >= 0) == await things.count() == 40
        assert await kv.get("name") in ("ab", "a-b")
    rows = await both_kinds.rows("mod/a/")
    assert rows == {}


async def _handles(office, module, generation):
    return office.documents(module, generation).collection("things", dict), office.key_values(
        module, generation
    )


@pytest.mark.parametrize("name", ["a/1", "", "A", "a:b", "../a"])
async def test_a_name_that_reaches_elsewhere_is_refused(one_office, name) -> None:
    with pytest.raises((HostError, Rejected)):
        await one_office.documents(name).collection("things", dict).insert({})
    assert await one_office.rows() == {}


async def test_an_upgrade_works_on_a_copy(both_kinds) -> None:
    things, kv = await _fill(both_kinds, "arena")
    before = await both_kinds.rows("mod/arena/1/")
    await both_kinds.data.copy("arena", 1, 2)
    copied, copied_kv = await _handles(both_kinds, "arena", 2)
    assert await copied.count(F.n < 10) == 10
    assert await copied_kv.get("name") == "arena"
    assert await copied_kv.expires_in("soon") > 900
    await copied.update_many(None, set={"new": True})
    await copied.delete_many(F.n >= 20)
    await copied_kv.put("name", "changed")
    await both_kinds.documents("arena", 2).drop("things")
    assert await both_kinds.rows("mod/arena/1/") == before
    assert await kv.get("name") == "arena"
    # The upgrade failed: the copy goes, and a second attempt begins with what is there now.
    await both_kinds.data.drop("arena", 2)
    await things.insert({"n": 1000})
    await both_kinds.data.copy("arena", 1, 2)
    assert await copied.count() == 41
    await both_kinds.data.drop("arena", 1)
    assert await both_kinds.data.generations("arena") == [2]
    assert await copied.count(F.n >= 0) == 41
    assert (await both_kinds.data.usage("arena")).documents == 41


async def test_a_sweep_drops_what_no_record_names(office) -> None:
    for module, generation in (("arena", 1), ("arena", 2), ("arena", 3), ("gone", 1)):
        await _fill(office, module, generation)
    await office.data.copy("arena", 2, 4)
    await office.data.sweep({"arena": 2})
    assert await office.data.generations("arena") == [2, 4], "an upgrade is under way"
    assert await office.data.generations("gone") == [1], "data of an uninstalled module stay"
    await office.data.sweep({"arena": 4})
    assert await office.data.generations("arena") == [4]


class WatchedLedger(Ledger):
    """Counts the steps of commits, and gives up where a test wants it."""

    left = 1_000_000
    largest = 0

    async def commit(self, *steps):
        if not self.left:
            raise RuntimeError("cut short")
        self.left -= 1
        self.largest = max(self.largest, len(steps))
        return await super().commit(*steps)


async def test_a_copy_cut_short_leaves_nothing_behind(store, clock) -> None:
    async with office_of(store, clock=clock, ledger_class=WatchedLedger) as office:
        await _fill(office, "arena")
        left = await office.rows("mod/arena/1/")
        for commits in range(8):
            office.ledger.left = commits
            with contextlib.suppress(RuntimeError):
                await office.data.copy("arena", 1, 2)
        assert await office.rows("mod/arena/1/") == left
        office.ledger.left = 3
        with pytest.raises(RuntimeError):
            await office.data.drop("arena", 2)
    async with office_of(store, clock=clock, holder="next") as office:
        await office.data.sweep({"arena": 1})
        assert await office.rows("mod/arena/2/") == {}
        assert await office.rows("mod/arena/1/") == left
        assert await office.data.generations("arena") == [1]


@pytest.mark.trap("T15")
async def test_a_deposed_leaders_module_writes_are_refused(request, store, clock, valkey) -> None:
    named = {"clock": clock, "namespace": request.node.name}
    for url in ("", valkey.url):
        async with office_of(store, url=url, **named) as old:
            things, kv = await _fill(old, "arena")
            async with office_of(store, holder="successor", url=url, **named) as new:
                for attempt in (
                    things.insert({}),
                    things.update_many(None, set={"n": 1}),
                    things.delete_many(None),
                    kv.put("name", "x"),
                    kv.delete("name"),
                    kv.expire("name", 5),
                    kv.increment("count"),
                ):
                    with pytest.raises(Refused) as refused:
                        await attempt
                    assert refused.value.code == Code.FENCED.name
                for attempt in (old.data.copy("arena", 1, 2), old.data.drop("arena", 1)):
                    with pytest.raises(Fenced):
                        await attempt
                assert await new.documents().collection("things", dict).count() == 40
                assert await new.key_values().get("name") == "arena"
                await new.documents().collection("things", dict).insert({})
                await new.key_values().put("name", "new")
                await new.data.drop_all("arena")


@pytest.mark.system
@pytest.mark.trap("T37")
async def test_many_rows_are_dropped_in_small_steps(sqlite_store) -> None:
    async with office_of(sqlite_store, ledger_class=WatchedLedger) as office:
        things = await office.documents(documents_mb=256).create("things", dict, indexes=[Index("n")])
        await things.insert_many({"n": i} for i in range(20_000))
        assert await things.delete_many(F.n < 5_000) == 5_000
        await office.data.drop("arena", 1)
        assert await office.rows() == {}
        assert office.ledger.largest <= 1100
