"""The parts of a term that handlers declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from corral.controller.http.pipeline.api import server_of
from corral.controller.http.pipeline.api_context import ProcessContext, TermContext
from corral.controller.http.pipeline.handler_parameters import PORTS, bound
from corral.controller.http.pipeline.tickets import Tickets
from corral.controller.http.routes import ROUTES
from corral.controller.http.server.metrics import HttpMetrics
from corral.controller.state.cluster_state import ClusterState


class Term:
    """Two parts of a term, and nothing else that could be used."""

    state = "the state"
    tickets = "the tickets"


LEADING = cast("TermContext", Term())


def test_a_handler_is_given_the_parts_that_it_declares_and_then_the_call() -> None:
    def handler(tickets: Tickets, state: ClusterState, call: str, body: int) -> tuple[Any, ...]:
        return tickets, state, call, body

    assert bound(handler, given=2)(LEADING, "call", 7) == ("the tickets", "the state", "call", 7)


def test_a_handler_may_declare_nothing() -> None:
    def handler(call: str) -> str:
        return call

    assert bound(handler, given=1)(LEADING, "call") == "call"


@dataclass(frozen=True, kw_only=True)
class Both:
    state: ClusterState
    tickets: Tickets


def test_a_dataclass_of_parts_stands_for_all_of_them() -> None:
    def handler(both: Both) -> Both:
        return both

    found = bound(handler, given=0)(LEADING)
    assert (found.state, found.tickets) == ("the state", "the tickets")


def test_what_is_no_part_of_a_term_is_refused_when_it_is_bound() -> None:
    def handler(stat: ClusterState, call: str) -> None:
        raise AssertionError(stat, call)

    with pytest.raises(ValueError, match=r"'stat', which is no part of a term; parts: setting, state,"):
        bound(handler, given=1)


def test_a_part_of_another_type_is_refused_when_it_is_bound() -> None:
    def handler(state: Tickets, call: str) -> None:
        raise AssertionError(state, call)

    with pytest.raises(ValueError, match="declares 'state' as"):
        bound(handler, given=1)


def test_no_handler_is_handed_the_whole_term() -> None:
    assert TermContext not in PORTS.values()
    with pytest.raises(ValueError, match="'leading', which is no part"):
        bound(whole, given=0)


def whole(leading: TermContext) -> None:
    raise AssertionError(leading)


def test_every_route_of_the_table_has_a_server_and_declares_parts_that_there_are() -> None:
    setting = ProcessContext(
        clock=cast("Any", None),
        entropy=cast("Any", None),
        log_ring=cast("Any", None),
        set_log_level=lambda _: None,
        metrics=HttpMetrics(),
    )
    for route in ROUTES:
        assert server_of(route, setting=setting, gate=lambda: None) is not None, route.name
