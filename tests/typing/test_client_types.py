"""What a type checker says about programs that use the client: answers and arguments are typed."""

from __future__ import annotations

import pathlib

import pytest
from marked_errors import check_marks

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.system
def test_mypy_finds_in_programs_what_is_marked_and_nothing_else(scratch):
    check_marks(pathlib.Path(__file__).parent / "client_cases", source=ROOT / "src", cache=scratch / "cache")
