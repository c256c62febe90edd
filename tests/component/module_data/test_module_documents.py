"""Documents of modules: what is written is found, all or nothing, within bounds."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from corral.sdk.errors import HostError, QueryInvalid, Refused, StorageQuotaExceeded, StorageUnavailable
from corral.sdk.filters import F
from corral.sdk.storage import NEW, Index


class Player(msgspec.Struct):
    name: str
    score: int = 0
    game: str = "bedwars"
    tags: list[str] = []


BY_SCORE = Index("score")
BY_NAME = Index("name", unique=True)


def _cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def code_of(caught) -> str:
    return caught.value.code


async def test_a_document_comes_back_as_it_went(office) -> None:
    players = office.documents().collection("players", Player)
    assert await players.get("ada") is None
    assert await players.find() == []
    id = await players.insert(Player("Ada", 3, tags=["vip"]), id="ada")
    stored = await players.get(id)
    assert (stored.id, stored.value) == ("ada", Player("Ada", 3, tags=["vip"]))
    assert stored.revision > 0
    made = await players.insert(Player("Bob"))
    assert (await players.get(made)).value.name == "Bob"
    assert await players.count() == 2
    assert await office.documents().collections() == ["players"]


async def test_documents_are_replaced_changed_and_deleted(office) -> None:
    players = await office.documents().create("players", Player, indexes=[BY_SCORE, BY_NAME])
    await players.insert(Player("Ada"), id="ada")
    revision = await players.update("ada", inc={"score": 5}, push={"tags": "vip"})
    ada = await players.get("ada")
    assert (ada.revision, ada.value) == (revision, Player("Ada", 5, tags=["vip"]))
    await players.replace("ada", Player("Ada", 7), expect=revision)
    assert [p.value.score for p in await players.find(F.score == 7)] == [7]
    assert await players.find(F.score == 5) == []
    await players.update("new", upsert=True, set={"name": "New", "score": 1})
    await players.replace("other", Player("Other"), upsert=True)
    assert await players.count() == 3
    assert await players.delete("ada") is True
    assert await players.delete("ada") is False
    assert [p.id for p in await players.find(sort=["score"])] == ["other", "new"]


async def test_whoever_expects_another_revision_is_refused(office) -> None:
    players = office.documents().collection("players", Player)
    await players.insert(Player("Ada"), id="ada")
    ada = await players.get("ada")
    await players.update("ada", inc={"score": 1})
    for attempt in (
        players.replace("ada", Player("X"), expect=ada.revision),
        players.update("ada", set={"name": "X"}, expect=ada.revision),
        players.delete("ada", expect=ada.revision),
    ):
        with pytest.raises(Refused) as refused:
            await attempt
        assert code_of(refused) == "REVISION_MISMATCH"
    with pytest.raises(Refused) as refused:
        await players.insert(Player("X"), id="ada")
    assert code_of(refused) == "ALREADY_EXISTS"
    with pytest.raises(Refused) as refused:
        await players.update("ada", expect=NEW, upsert=True, set={"name": "X"})
    assert code_of(refused) == "ALREADY_EXISTS"
    for attempt in (
        players.replace("bob", Player("B")),
        players.update("bob", inc={"score": 1}),
        players.delete("bob", expect=3),
    ):
        with pytest.raises(Refused) as refused:
            await attempt
        assert code_of(refused) == "NOT_FOUND"
    assert (await players.get("ada")).value == Player("Ada", 1)


async def test_a_transaction_is_done_as_a_whole_or_not_at_all(office) -> None:
    storage = office.documents()
    players = await storage.create("players", Player, indexes=[BY_NAME])
    trades = storage.collection("trades", dict)
    await players.insert(Player("Ada", 10), id="ada")
    ada = await players.get("ada")
    async with storage.transaction() as tx:
        tx.update(players, "ada", inc={"score": -4}, expect=ada.revision)
        tx.insert(trades, {"price": 4}, id="t1")
        tx.update(trades, "t1", set={"buyer": "ada"})
        tx.insert(players, Player("Bob", 4), id="bob")
    assert tx.revision == (await players.get("bob")).revision == (await trades.get("t1")).revision
    assert (await trades.get("t1")).value == {"price": 4, "buyer": "ada"}
    before = await office.rows()
    with pytest.raises(Refused) as refused:
        async with storage.transaction() as tx:
            tx.insert(trades, {"price": 1})
            tx.check(players, "ada", expect=ada.revision)
    assert code_of(refused) == "REVISION_MISMATCH"
    with pytest.raises(Refused) as refused:
        async with storage.transaction() as tx:
            tx.delete(trades, "t1")
            tx.insert(players, Player("Bob"))
    assert code_of(refused) == "ALREADY_EXISTS"
    with pytest.raises(RuntimeError):
        async with storage.transaction() as tx:
            tx.delete(trades, "t1")
            raise RuntimeError
    assert await office.rows() == before


async def test_a_unique_value_can_change_hands_within_a_transaction(office) -> None:
    storage = office.documents()
    players = await storage.create("players", Player, indexes=[BY_NAME])
    await players.insert(Player("Ada"), id="1")
    await players.insert(Player("Bob"), id="2")
    async with storage.transaction() as tx:
        tx.update(players, "1", set={"name": "Bob"})
        tx.update(players, "2", set={"name": "Ada"})
    assert [p.id for p in await players.find(F.name == "Ada")] == ["2"]
    assert [p.id for p in await players.find(F.name == "Bob")] == ["1"]
    await players.update("1", inc={"score": 1})
    with pytest.raises(Refused) as refused:
        await players.update("1", set={"name": "Ada"})
    assert code_of(refused) == "ALREADY_EXISTS"
    async with storage.transaction() as tx:
        tx.delete(players, "2")
        tx.update(players, "1", set={"name": "Ada"})
    assert [p.id for p in await players.find(F.name == "Ada")] == ["1"]
    await players.insert(Player("Bob"))


async def test_documents_that_lack_a_unique_field_do_not_hinder_each_other(one_office) -> None:
    things = await one_office.documents().create("things", dict, indexes=[BY_NAME])
    await things.insert_many([{}, {}, {"name": "x"}])
    with pytest.raises(Refused):
        await things.insert({"name": "x"})
    assert await things.count(F.name.missing()) == 2


async def test_long_values_are_found_sorted_and_told_apart(office) -> None:
    """Keys in an index are cut; nothing of that may be seen."""
    things = await office.documents().create("things", dict, indexes=[BY_NAME])
    names = [f"{'n' * 300}{i}" for i in range(12)] + ["n" * n for n in (10, 198, 199, 200, 201, 500)]
    await things.insert_many([{"name": name} for name in names])
    found = await things.find(sort=["name"])
    assert [each.value["name"] for each in found] == sorted(names)
    down = await things.find(F.name > "n" * 200, sort=["-name"], limit=3)
    assert [each.value["name"] for each in down] == sorted((n for n in names if n > "n" * 200), reverse=True)[
        :3
    ]
    for name in names:
        assert [each.value["name"] for each in await things.find(F.name == name)] == [name]
    with pytest.raises(Refused):
        await things.insert({"name": names[3]})


async def test_pages_follow_one_another_without_gaps(office) -> None:
    players = await office.documents().create("players", Player, indexes=[BY_SCORE])
    await players.insert_many([Player(f"p{i}", i % 7) for i in range(120)])
    whole = await players.find(sort=["score", "-name"])
    assert len(whole) == 120
    for sort in (["score"], ["-score"], ["-score", "name"], [], ["-_id"], ["name"]):
        everything = [p.id for p in await players.find(sort=sort)]
        assert len(set(everything)) == 120
        paged: list[str] = []
        body_after = ""
        while True:
            page, body_after = await _page(office, sort, body_after)
            paged += page
            if not body_after:
                break
        assert paged == everything
        skipped = await players.find(sort=sort, skip=50, limit=20)
        assert [p.id for p in skipped] == everything[50:70]


async def _page(office, sort, after):
    from data_rig import DataLink, scope_of

    from corral.sdk.protocol import storage_messages as said

    link = DataLink(office.data, scope_of())
    body = said.FindDocuments(collection="players", sort=tuple(sort), limit=17, after=after)
    page = await link.call(said.FIND, body, said.DocumentPage)
    return [document.id for document in page.documents], page.next


@pytest.mark.parametrize(
    "forged",
    [
        "no-base64!",
        _cursor('[["score"],[[1]]]'),
        _cursor('[["name"],[[1]],"a"]'),
        _cursor('[["score"],[[1,2]],"a"]'),
        _cursor('[["score"],[[1]],"a\\u0000"]'),
        _cursor(f'[["score"],[[{"[" * 950}{"]" * 950}]],"a"]'),
        _cursor(f'[["score"],[[{2**64}]],"a"]'),
    ],
)
async def test_a_cursor_that_no_answer_gave_is_refused(one_office, forged: str) -> None:
    await one_office.documents().collection("players", Player).insert(Player("Ada"))
    with pytest.raises(QueryInvalid):
        await _page(one_office, ["score"], forged)


async def test_large_documents_come_in_small_pages(one_office) -> None:
    things = one_office.documents(documents_mb=32).collection("things", dict)
    for i in range(12):
        await things.insert({"n": i, "text": "x" * 700_000}, id=f"{i:02}")
    assert [d.value["n"] for d in await things.find(sort=["-n"])] == list(range(11, -1, -1))
    assert [d.value["n"] async for d in things.find()] == list(range(12))


async def test_an_index_is_built_over_what_is_there_and_removed_again(office) -> None:
    storage = office.documents()
    players = storage.collection("players", Player)
    await players.insert_many([Player(f"p{i}", i) for i in range(250)])
    assert not [key for key in await office.rows() if key[0].startswith("mod/arena/1/i/")]
    await storage.create("players", Player, indexes=[BY_SCORE, BY_NAME])
    assert len([key for key in await office.rows() if key[0].startswith("mod/arena/1/i/")]) == 500
    assert [p.value.score for p in await players.find(F.score >= 247, sort=["-score"])] == [249, 248, 247]
    await storage.create("players", Player, indexes=[BY_NAME])
    assert len([key for key in await office.rows() if key[0].startswith("mod/arena/1/i/")]) == 250
    assert await players.count(F.score >= 247) == 3


async def test_a_unique_index_that_cannot_be_is_refused_and_leaves_nothing(office) -> None:
    storage = office.documents()
    players = storage.collection("players", Player)
    await players.insert_many([Player(f"p{i}") for i in range(150)] + [Player("p3")])
    with pytest.raises(Refused) as refused:
        await storage.create("players", Player, indexes=[BY_SCORE, BY_NAME])
    assert code_of(refused) == "ALREADY_EXISTS"
    await players.insert(Player("p3"))
    assert await players.count(F.name == "p3") == 3
    entries = [key for key in await office.rows() if key[0].startswith("mod/arena/1/i/")]
    assert len(entries) == 152


async def test_many_are_changed_and_deleted_by_one_call(office) -> None:
    players = await office.documents().create("players", Player, indexes=[BY_SCORE])
    await players.insert_many([Player(f"p{i}", i) for i in range(700)])
    assert await players.update_many(F.score >= 100, inc={"score": 1000}) == 600
    assert await players.count(F.score >= 1000) == 600
    assert await players.delete_many(F.score < 1100) == 100
    assert await players.count() == 600
    assert await players.delete_many(None) == 600
    assert await players.find() == []
    rows = await office.rows()
    assert {key[0] for key in rows} == {"mod/arena/1/u"}
    assert (await office.data.usage("arena")).document_bytes == 0


async def test_a_dropped_collection_is_gone_and_can_come_again(office) -> None:
    storage = office.documents()
    players = await storage.create("players", Player, indexes=[BY_NAME])
    await players.insert_many([Player(f"p{i}") for i in range(20)])
    others = storage.collection("players-2", Player)
    await others.insert(Player("p0"))
    assert await storage.drop("players") is True
    assert await storage.drop("players") is False
    assert await players.find() == []
    assert await storage.collections() == ["players-2"]
    assert await others.count() == 1
    await players.insert(Player("p0"))
    assert await players.count() == 1


async def test_storage_is_bounded_and_nothing_is_half_done_at_the_bound(office) -> None:
    things = office.documents(documents_mb=1).collection("things", dict)
    await things.insert({"text": "x" * 500_000}, id="big")
    await things.insert({"text": "x" * 400_000}, id="other")
    before = await office.rows()
    with pytest.raises(StorageQuotaExceeded) as refused:
        await things.insert({"text": "x" * 200_000})
    assert "storage.limits" in str(refused.value)
    with pytest.raises(StorageQuotaExceeded):
        await things.update("big", set={"more": "x" * 160_000})
    assert await office.rows() == before
    await things.update("big", set={"text": "small"})
    await things.delete("other")
    await things.insert({"text": "x" * 200_000})
    usage = await office.data.usage("arena")
    assert usage.documents == 2
    assert 200_000 < usage.document_bytes < 201_000


async def test_brackets_within_texts_are_no_parts_of_a_document(one_office) -> None:
    things = one_office.documents().collection("things", dict)
    text = '[{"a": "\\\\"}]' * 15_000
    await things.insert({"text": text, "many": [[]] * 19_000}, id="a")
    assert (await things.get("a")).value["text"] == text


async def test_what_is_too_large_or_no_document_is_refused(one_office) -> None:
    things = one_office.documents().collection("things", dict)
    with pytest.raises(Refused) as refused:
        await things.insert({"text": "x" * 1_100_000})
    assert code_of(refused) == "BODY_TOO_LARGE"
    deep: dict = {}
    for _ in range(60):
        deep = {"a": deep}
    listed = one_office.documents().collection("things", list)
    for attempt in (
        things.insert(deep),
        listed.insert([1]),
        things.insert({"_id": "x"}),
        things.insert({"many": [[]] * 20_001}),
        things.insert({"n": 2**64}),
        things.insert({}, id="control\x01"),
        things.insert({}, id="x" * 300),
        one_office.documents().collection("a/b", dict).insert({}),
        one_office.documents().collection("", dict).find_one(),
        things.find_one({"a": {"above": 1}}),
        things.find_one(sort=["a", "-a"]),
        one_office.documents().create("x", dict, indexes=[Index()]),
        one_office.documents().create("x", dict, indexes=[Index(f"f{i}") for i in range(20)]),
    ):
        with pytest.raises(QueryInvalid):
            await attempt
    assert await one_office.rows() == {}


async def test_a_module_without_the_storage_in_its_manifest_gets_none(one_office) -> None:
    things = one_office.documents(documents=False).collection("things", dict)
    with pytest.raises(StorageUnavailable) as refused:
        await things.insert({})
    assert "manifest" in str(refused.value)
    with pytest.raises(StorageUnavailable):
        await one_office.key_values(key_value=False).put("a", 1)


async def test_writers_of_one_collection_do_not_lose_each_others_changes(office) -> None:
    players = await office.documents().create("players", Player, indexes=[BY_SCORE])
    await players.insert(Player("Ada"), id="ada")
    await asyncio.gather(*(players.update("ada", inc={"score": 1}) for _ in range(40)))
    assert (await players.get("ada")).value.score == 40
    assert [p.id for p in await players.find(F.score == 40)] == ["ada"]
    assert (await office.data.usage("arena")).documents == 1


async def test_a_call_that_is_cancelled_leaves_the_storage_sound(one_office) -> None:
    players = await one_office.documents().create("players", Player, indexes=[BY_SCORE, BY_NAME])
    for i in range(30):
        task = asyncio.ensure_future(players.insert(Player(f"p{i}", i), id=f"{i}"))
        for _ in range(i % 10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await players.insert(Player("last", 1000), id="last")
    found = {p.value.score for p in await players.find()}
    assert {p.value.score for p in await players.find(F.score >= 0)} == found
    assert {p.value.score for p in await players.find(sort=["name"])} == found
    assert await players.count() == len(found) == (await one_office.data.usage("arena")).documents


async def test_readers_do_not_wait_for_writers(one_office) -> None:
    players = one_office.documents().collection("players", Player)
    await players.insert(Player("Ada"), id="ada")
    async with one_office.data._documents._locks.hold(_space("arena").id):
        writing = asyncio.ensure_future(players.insert(Player("Bob")))
        async with asyncio.timeout(20):
            assert (await players.get("ada")).value.name == "Ada"
            assert await players.count(F.name == "Ada") == 1
        assert not writing.done()
    await writing


def _space(module):
    from corral.controller.modules.data.spaces import Space

    return Space(module, 1)


async def test_every_refusal_of_the_host_is_an_error_of_the_sdk(one_office) -> None:
    with pytest.raises(HostError):
        await one_office.documents().collection("x", dict).find_one({"a": {"regex": "("}})
