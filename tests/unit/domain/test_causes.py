"""A cause is read as a request's id, or as nothing."""

from __future__ import annotations

import pytest

from corral.domain.causes import cause_of, request_id, request_of


@pytest.mark.parametrize("id", ["r", "req-4f2c", "A0._~:/+=@-", "x" * 128])
def test_an_id_is_the_same_at_the_other_end(id: str) -> None:
    assert request_id(id) == id
    assert request_of(cause_of(id)) == id


def test_no_request_is_no_cause() -> None:
    assert cause_of("") == ""
    assert request_of("") == ""


@pytest.mark.parametrize(
    "id",
    [
        "",
        "-",
        "-x",
        "--level",
        "x" * 129,
        "a b",
        "a\nb",
        "a\n",
        "\x1b[2J",
        "a\x00",
        "\u00e9",
        "\u0661",
        'a"b',
        "a;b",
    ],
)
def test_what_is_no_id_is_none(id: str) -> None:
    assert request_id(id) == ""
    assert request_of(f"request:{id}") == ""


@pytest.mark.parametrize(
    "cause", ["req-1", "instance:web-1", "Request:req-1", " request:req-1", "request", ":", "x" * 1_000_000]
)
def test_a_cause_of_another_kind_names_no_request(cause: str) -> None:
    assert request_of(cause) == ""
