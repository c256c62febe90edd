"""What routes may refuse is described, by a table without lines that mean nothing."""

from __future__ import annotations

import pathlib

from corral.client import errors
from corral.controller.http import refusals
from corral.controller.http.meanings import code_meanings
from corral.controller.http.pipeline import attempts
from corral.controller.http.pipeline.route_table import Page
from corral.controller.http.routes import ROUTES
from corral.errors import Code

ROOT = pathlib.Path(__file__).resolve().parents[3]
SHOWN = [route for route in ROUTES if not isinstance(route, Page)]


def test_every_line_of_the_table_matches_a_route() -> None:
    names = [route.name for route in SHOWN]
    lines = [line.pattern for line in refusals.declared() if not any(map(line.matches.fullmatch, names))]
    assert lines == []


def test_no_route_describes_a_bug() -> None:
    assert not any(Code.INTERNAL.status in refusals.refusals_of(route) for route in SHOWN)


def test_every_code_has_a_meaning_and_every_meaning_a_code() -> None:
    assert set(code_meanings()) == set(Code.__members__)


def test_the_table_ships_with_the_program() -> None:
    assert f"controller/http/{refusals.FILE}" in (ROOT / "pyproject.toml").read_text()


def test_the_client_knows_every_code_that_leaves_doubt() -> None:
    own = {Code.INTERNAL, Code.STORE_UNAVAILABLE}  # these end requests that may have been committed
    assert {code.name for code in attempts.IN_DOUBT | own} == errors.IN_DOUBT
