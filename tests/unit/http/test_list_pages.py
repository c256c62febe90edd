"""Orders, searches and cursors of lists: every item once, whatever else changes, and nothing but INVALID_CURSOR for what is
no cursor of this list in this order."""

from __future__ import annotations

import base64
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.controller.http.messages.list_pages import (
    MOST_IDS,
    ListQuery,
    ListSource,
    SortField,
    View,
    list_page,
    summary_page,
)
from corral.controller.http.messages.paging import encode_cursor
from corral.controller.http.pipeline.summary_cache import SummaryCache, short_text
from corral.controller.http.resources import node_summaries
from corral.controller.http.resources.event_resources import deployment_summary, module_summary
from corral.controller.http.resources.groups import group_summaries
from corral.controller.http.resources.instances import instance_summaries
from corral.controller.state.cluster_state import ClusterState, Mirror
from corral.controller.state.collections import StateCollection
from corral.domain.records import Record
from corral.domain.sensitive_fields import HIDDEN
from corral.errors import Code, Rejected
from corral.store.port import encode

Size = int | float | None
Sizes = dict[str, Size]
IDS = st.text("abcdé-09", min_size=1, max_size=4)
SIZES = st.one_of(st.none(), st.integers(-3, 3), st.floats())
ITEMS = st.dictionaries(IDS, SIZES, max_size=12)
MOST_LISTED = 40
ORDERS = st.sampled_from(("size", "-size", "name", "-name", None))


class SortedQuery(ListQuery, frozen=True, kw_only=True):
    sort: str | None = None


class Thing(Record, frozen=True, kw_only=True):
    name: str


THINGS = StateCollection("things", Thing)


class Shown(msgspec.Struct, frozen=True):
    id: str


class Listed:
    """A list of things, which have a name; their sizes are kept beside them, as players and load are."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes: Sizes = {}
        self.mirror = Mirror(THINGS, "thing")
        self.accepts: Callable[[Thing], bool] | None = None
        for id, size in sizes.items():
            self.put(id, size)

    def put(self, id: str, size: Size) -> None:
        self.sizes[id] = size
        self.mirror.fold(id, 1, encode(Thing(name=id)))

    def drop(self, id: str) -> None:
        self.sizes.pop(id, None)
        self.mirror.fold(id, 1, None)

    def source(self) -> ListSource[Thing]:
        return ListSource(
            mirror=self.mirror,
            texts=lambda record: (record.name,),
            sorts={
                "name": SortField(str, lambda record: record.name),
                "size": SortField(float, lambda record: self.sizes[record.name]),
            },
            accepts=self.accepts,
        )

    def page(self, view: View = View.FULL, **query: Any) -> tuple[list[str], str | None]:
        asked = SortedQuery(view=view, **query)
        if view is View.FULL:
            page = list_page(self.source(), asked, lambda stored: stored.record.name)
            return page.items, page.next
        found = summary_page(self.source(), asked, lambda stored: msgspec.json.encode(stored.record.name))
        return [msgspec.json.decode(each) for each in found.items], found.next


def expected(sizes: Sizes, order: str | None) -> list[str]:
    """All ids in this order, worked out in another way."""
    ids = sorted(sizes)
    name, down = (order or "name").removeprefix("-"), (order or "").startswith("-")
    if name == "name":
        return ids[::-1] if down else ids
    known = [(size, id) for id in ids if (size := sizes[id]) is not None and -9 < size < 9]
    rest = [id for id in ids if id not in {id for _, id in known}]
    return [id for _, id in sorted(known, key=lambda each: (-each[0] if down else each[0], each[1]))] + rest


@settings(max_examples=150)
@given(st.dictionaries(IDS, st.one_of(st.none(), st.integers(-3, 3), st.floats(-3, 3)), max_size=12), ORDERS,
       st.integers(1, 5), st.sampled_from(View))  # fmt: skip
def test_pages_in_any_order_have_every_item_once_and_in_that_order(
    sizes: Sizes, order: str | None, limit: int, view: View
) -> None:
    listed = Listed(sizes)
    found: list[str] = []
    cursor: str | None = None
    while True:
        items, cursor = listed.page(view, sort=order, limit=limit, cursor=cursor)
        found += items
        assert len(found) <= MOST_LISTED, "a list has an end"
        if cursor is None:
            break
        assert len(items) == limit
    assert found == expected(sizes, order)


@settings(max_examples=150)
@given(ITEMS, ITEMS, ORDERS, st.integers(1, 3), st.sampled_from(View))
def test_what_comes_goes_or_changes_between_pages_moves_nothing_else(
    before: Sizes, changes: Sizes, order: str | None, limit: int, view: View
) -> None:
    listed = Listed(before)
    found: list[str] = []
    cursor: str | None = None
    pending = list(changes.items())
    while True:
        items, cursor = listed.page(view, sort=order, limit=limit, cursor=cursor)
        found += items
        assert len(found) <= MOST_LISTED, "a list has an end"
        if cursor is None:
            break
        if pending:
            id, size = pending.pop()
            if id in listed.sizes and size is None:
                listed.drop(id)
            else:
                listed.put(id, size)
    unchanged = [id for id in found if id in before and id not in changes]
    assert sorted(unchanged) == sorted(before.keys() - changes.keys())
    assert unchanged == [id for id in whole(listed, order) if id in set(unchanged)]


def whole(listed: Listed, order: str | None) -> list[str]:
    return listed.page(sort=order, limit=500)[0]


@settings(max_examples=200)
@given(st.one_of(st.text(max_size=60), st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode())),
       ORDERS, st.sampled_from(View))  # fmt: skip
def test_a_forged_cursor_is_refused(text: str, order: str | None, view: View) -> None:
    with pytest.raises(Rejected) as refused:
        Listed({"a": 1}).page(view, sort=order, cursor=text)
    assert refused.value.code is Code.INVALID_CURSOR


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=200)
@given(JSON, st.sampled_from(("size", "-size", "name", "-name")))
def test_a_cursor_of_this_order_with_another_value_is_a_place_in_it_or_refused(
    value: Any, order: str
) -> None:
    forged = encode_cursor(f"things?sort={order}", msgspec.json.encode(value).decode())
    listed = Listed({"a": 1, "b": None, "c": 2.5})
    whole_list = whole(listed, order)
    try:
        items, _ = listed.page(sort=order, cursor=forged)
    except Rejected as refused:
        code = refused.code
    else:
        code, whole_list = Code.INVALID_CURSOR, whole_list[len(whole_list) - len(items) :]
        assert items == whole_list, "the end of the list, from that place on"
    assert code is Code.INVALID_CURSOR


@pytest.mark.parametrize("other", [None, "-size", "name"])
def test_a_cursor_of_another_order_or_another_list_is_refused(other: str | None) -> None:
    listed = Listed({"a": 1, "b": 2})
    _, cursor = listed.page(sort="size", limit=1)
    for forged, order in (
        (cursor, other),
        (encode_cursor("nodes", "a"), other),
        (encode_cursor("things", "a"), "size"),
    ):
        with pytest.raises(Rejected) as refused:
            listed.page(sort=order, cursor=forged)
        assert refused.value.code is Code.INVALID_CURSOR


@pytest.mark.parametrize("view", View)
def test_a_search_finds_a_part_of_the_text_and_no_pattern(view: View) -> None:
    listed = Listed({"Alpha": 1, "alphabet": 2, "beta": 3, "a.c": 4, "abc": 5, "straße": 6})
    assert listed.page(view, q="ALPHA")[0] == ["Alpha", "alphabet"]
    assert listed.page(view, q="a.c")[0] == ["a.c"]
    assert listed.page(view, q=".*")[0] == []
    assert listed.page(view, q="(a+)+$")[0] == []
    assert listed.page(view, q="STRASSE")[0] == ["straße"]
    assert listed.page(view, q="alpha", sort="-size")[0] == ["alphabet", "Alpha"]


@pytest.mark.parametrize("view", View)
def test_ids_are_listed_once_and_what_does_not_exist_is_left_out(view: View) -> None:
    listed = Listed({"a": 3, "b": 2, "c": 1})
    assert listed.page(view, ids="c,zz,a,a,,")[0] == ["a", "c"]
    assert listed.page(view, ids="c,zz,a", sort="size")[0] == ["c", "a"]
    assert listed.page(view, ids="zz")[0] == []
    listed.accepts = lambda record: record.name != "a"
    assert listed.page(view, ids="a,c")[0] == ["c"]
    with pytest.raises(Rejected, match=f"501 were given, and {MOST_IDS} are possible"):
        listed.page(view, ids=",".join(map(str, range(MOST_IDS + 1))))


def test_the_total_counts_what_the_caller_may_see_on_all_pages() -> None:
    listed = Listed(dict.fromkeys("abcdef", 1))
    listed.accepts = lambda record: record.name in "abcd"
    for query in ({}, {"sort": "size"}, {"sort": "-name"}):
        asked = SortedQuery(limit=2, **query)  # type: ignore[arg-type]
        page = summary_page(listed.source(), asked, lambda _: b"1")
        assert (page.total, len(page.items)) == (4, 2)
        rest = msgspec.structs.replace(asked, cursor=page.next)
        assert summary_page(listed.source(), rest, lambda _: b"1").total == 4


def test_whole_items_come_by_500_and_summaries_by_5000() -> None:
    with pytest.raises(Rejected, match="at most 500 whole items, not 501"):
        Listed({}).page(limit=501)
    assert Listed({}).page(View.SUMMARY, limit=5000) == ([], None)


def test_a_page_of_summaries_ends_before_it_is_too_long() -> None:
    listed = Listed(dict.fromkeys("abc", 1))
    page = summary_page(listed.source(), SortedQuery(), lambda _: b'"%s"' % (b"x" * 3_000_000))
    assert len(page.items) == 1
    assert page.next is not None


def test_every_order_that_a_list_offers_is_there() -> None:
    state = ClusterState()
    workload: Any = SimpleNamespace(vitals=SimpleNamespace(players_of=lambda _: None))
    nodes: Any = SimpleNamespace(live=lambda _: None)
    offered = {
        instance_summaries.InstanceSort: instance_summaries.sorts(workload),
        group_summaries.GroupSort: group_summaries.sorts(state),
        node_summaries.NodeSort: node_summaries.sorts(state, nodes),
    }
    for names, fields in offered.items():
        assert list(typing.get_args(names)) == [sign + each for each in fields for sign in ("", "-")]


def test_a_summary_is_encoded_anew_when_something_in_it_changes_and_forgotten_with_its_resource() -> None:
    cache, made = SummaryCache(), list[str]()

    def make(id: str) -> Shown:
        made.append(id)
        return Shown(id)

    for basis in ((1, "a"), (1, "a"), (2, "a"), (2, None)):
        body = cache.encoded("x", basis, lambda: make("x"))
        assert msgspec.json.decode(body) == {"id": HIDDEN}, "a field without a class is shown to nobody"
    assert made == ["x"] * 3
    listed = Listed(dict.fromkeys("ab", 1))
    for number in range(200):
        cache.encoded(f"gone-{number}", (1,), lambda: make("gone"))
    cache.encoded("a", (1,), lambda: make("a"))
    cache.trim(listed.mirror)
    assert len(cache) == 1


def test_long_sentences_are_cut_in_summaries() -> None:
    assert short_text("x" * 200) == "x" * 200
    assert short_text("x" * 201) == "x" * 199 + "…"
    for before in range(170, 200):
        cut = short_text("x" * before + " http://bob:hunter2@files.example/a")
        assert "hun" not in cut, "half a password is none of an address any more"


def test_sentences_of_deployments_and_modules_are_cut_in_summaries() -> None:
    """A compiler's output, or a module's, may be a reason."""
    text, nothing = "x" * 5000, dict.fromkeys(("id", "group", "state", "target", "stable", "failed"), 1)
    times = {"created_at": None, "ended_at": None}
    record: Any = SimpleNamespace(**nothing, **times, waiting=text, outcome=text)
    view: Any = None
    stored: Any = SimpleNamespace(record=record, revision=1)
    deployment = deployment_summary(view, stored)
    assert (len(deployment.waiting), len(deployment.outcome)) == (200, 200)
    module: Any = SimpleNamespace(id="m", version="1", phase=None, intent=None, reason=text)
    stored = SimpleNamespace(record=module, revision=1)
    assert len(module_summary(view, stored).reason) == 200
