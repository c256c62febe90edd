"""Commands that end instances whose players nothing reports: on a terminal they ask, scripts are not asked."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from people import Person
from stand_in_controller import Request, StandIn

Corral = Callable[..., subprocess.CompletedProcess[str]]

_GROUP = {"name": "tee", "status": {"wanted": 1, "instances": 2, "ready": 2, "deployment": "dep-1"}}
_ORDERS: dict[tuple[str, ...], str] = {
    ("deploy", "tee"): "deploy group 'tee'",
    ("group", "restart", "tee"): "restart group 'tee'",
    ("group", "scale", "tee", "1"): "scale group 'tee' to 1 instance",
}


@pytest.fixture
def person(server: StandIn, tmp_path: pathlib.Path) -> Person:
    return Person(tmp_path / "ada", CORRAL_URL=server.url, CORRAL_TOKEN="t")


def answering(server: StandIn, **instance: Any) -> Callable[[], list[bool]]:
    """Answers of a controller where a change would touch one instance; what was sent of it: whether it was a dry run."""
    touched = {"id": "tee-1", "group": "tee", "node": "n1", "players": None, "effect": "replaced", **instance}
    dry = {"changes": [], "instances": [touched], "players": 0, "worlds": [], "warnings": [], "decisions": []}
    begun = {"id": "dep-1", "group": "tee", "state": "ROLLING", "target": 2, "progress": {}, **_GROUP}

    def order(request: Request) -> tuple[int, Any]:
        return 200, dry if request.query.get("dry_run") else begun

    for verb in ("deploy", "restart", "scale"):
        server.answers["POST", f"/api/v1/groups/tee/{verb}"] = order
    server.answers["GET", "/api/v1/deployments/dep-1"] = (200, begun)
    return lambda: ["dry_run" in each.query for each in server.requests if each.method == "POST"]


@pytest.mark.parametrize(("order", "question"), _ORDERS.items(), ids=_ORDERS.values())
async def test_on_a_terminal_uncounted_players_are_asked_about(
    server: StandIn, person: Person, order: tuple[str, ...], question: str
) -> None:
    sent = answering(server)
    code, seen = await person.talk(*order, answers=[(f"{question} [y/N]", "n")])
    assert (code, sent()) == (1, [True]), seen
    assert "players unknown: nothing reports how many are on 'tee-1'" in seen
    code, seen = await person.talk(*order, answers=[(f"{question} [y/N]", "y")])
    assert (code, sent()) == (0, [True, True, False]), seen


@pytest.mark.parametrize("order", _ORDERS, ids=" ".join)
async def test_without_a_terminal_or_with_a_yes_nobody_is_asked(
    server: StandIn, person: Person, order: tuple[str, ...]
) -> None:
    sent = answering(server)
    done = await person.run(*order)
    assert (done.returncode, sent()) == (0, [False]), done.stderr
    code, seen = await person.talk(*order, "--yes", answers=[])
    assert (code, sent()) == (0, [False, False]), seen


@pytest.mark.parametrize(
    "instance", [{"players": 0}, {"effect": "outdated"}, {"effect": "waited_for"}], ids=str
)
async def test_what_is_counted_or_goes_on_needs_no_question(
    server: StandIn, person: Person, instance: dict[str, Any]
) -> None:
    sent = answering(server, **instance)
    code, seen = await person.talk("deploy", "tee", answers=[])
    assert (code, sent()) == (0, [True, False]), seen
