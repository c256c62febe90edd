"""Indexes and counters of instances equal a recount after any changes, and after memory is loaded anew."""

from __future__ import annotations

import collections
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from instance_strategies import CHANGES, GROUPS, NODES

from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.state.instance_mirror import InstanceMirror
from corral.domain.groups.instance_records import (
    InstanceRecord,
    is_draining,
    is_ready,
    is_starting,
    live,
    stays,
    takes_players,
)
from corral.domain.instance_states import ENDED, InstanceState
from corral.store.port import encode


def folded(changes: list[InstanceRecord | str]) -> tuple[InstanceMirror, dict[str, InstanceRecord]]:
    mirror, model = InstanceMirror(), dict[str, InstanceRecord]()
    for revision, change in enumerate(changes, start=1):
        if isinstance(change, InstanceRecord):
            mirror.fold(change.id, revision, encode(change))
            model[change.id] = change
        else:
            mirror.fold(change, revision, None)
            model.pop(change, None)
        check(mirror, model)
    return mirror, model


def check(mirror: InstanceMirror, model: dict[str, InstanceRecord]) -> None:
    ordered = [model[id] for id in sorted(model)]
    assert [(id, stored.record) for id, stored in mirror.items()] == sorted(model.items())
    assert set(mirror.nodes()) == {each.node for each in ordered}
    for group in GROUPS:
        members = [each for each in ordered if each.group == group]
        assert [stored.record for stored in mirror.of_group(group)] == members
        counts = mirror.counts(group)
        assert counts.live == sum(live(each.state) for each in members)
        assert counts.ready == sum(is_ready(each) for each in members)
        assert dict(counts.by_state) == dict(collections.Counter(each.state for each in members))
        assert counts.staying == sum(stays(each) for each in members)
        ended = [each for each in members if not live(each.state)]
        assert list(counts.held) == [each.id for each in ended if each.held]
        assert list(counts.ended) == [each.id for each in ended if each.exit and each.exit.outcome == ENDED]
        assert list(counts.open) == [each.id for each in members if takes_players(each)]
        assert counts.draining == sum(is_draining(each) for each in members)
        assert counts.starting == sum(is_starting(each) for each in members)
        away = (each.node for each in members if each.state is InstanceState.OFFLINE)
        assert dict(counts.away) == dict(collections.Counter(away))
        for alive in (False, True):
            taken = {id for id, each in model.items() if live(each.state) or not alive}
            free = itertools.islice(mirror.numbers(group, live=alive).free(1), 10)
            ids = (f"{group}-{n}" for n in itertools.count(1))
            expected = itertools.islice((id for id in ids if id not in taken), 10)
            assert [f"{group}-{n}" for n in free] == list(expected)
    for node in NODES:
        there = [each for each in ordered if each.node == node]
        assert [stored.record for stored in mirror.of_node(node)] == there
        assert mirror.live_on(node) == sum(live(each.state) for each in there)


@given(CHANGES)
def test_indexes_and_counters_equal_a_recount(changes: list[InstanceRecord | str]) -> None:
    _, model = folded(changes)
    anew = InstanceMirror()
    for id, record in model.items():  # as a snapshot of the store is loaded
        anew.fold(id, 1, encode(record))
    check(anew, model)


@settings(max_examples=50)
@given(
    CHANGES,
    st.integers(1, 5),
    st.sampled_from((None, *GROUPS)),
    st.sampled_from((None, *NODES)),
    st.sets(st.sampled_from(InstanceState), max_size=3),
)
def test_pages_by_an_index_list_what_a_walk_would(
    changes: list[InstanceRecord | str],
    limit: int,
    group: str | None,
    node: str | None,
    states: set[InstanceState],
) -> None:
    mirror, model = folded(changes)

    def accepts(record: InstanceRecord) -> bool:
        fits = group in (None, record.group) and node in (None, record.node)
        return fits and (not states or record.state in states)

    listed: list[str] = []
    cursor: str | None = None
    while True:
        page: Page[str] = page_of(
            mirror,
            PageQuery(limit=limit, cursor=cursor),
            accepts=accepts,
            shape=lambda stored: stored.record.id,
            among=mirror.narrowed(group=group, node=node, states=states),
        )
        listed += page.items
        cursor = page.next
        if cursor is None:
            break
        assert len(page.items) == limit
    assert listed == [id for id in sorted(model) if accepts(model[id])]
