"""Bodies as large as they may be: what is asked of each piece is asked once, and away from the loop."""

from __future__ import annotations

import enum
import threading
from typing import Any

import msgspec
import pytest

from corral.controller.http.messages.request_decoder import ON_LOOP, BodyDecoder
from corral.domain.json_limits import MOST_VALUES, first_repeated, repeated_key
from corral.errors import Code, Rejected, nearest

_NAMES = 30_000


class Counted:
    """A name that counts how often it is looked at."""

    looked_at = 0

    def __init__(self, number: int) -> None:
        self._number = number

    def __hash__(self) -> int:
        Counted.looked_at += 1
        return hash(self._number)

    def __eq__(self, other: object) -> bool:
        Counted.looked_at += 1
        return isinstance(other, Counted) and self._number == other._number


class Note(msgspec.Struct, forbid_unknown_fields=True):
    labels: dict[str, int] = {}
    text: str = ""

    def __post_init__(self) -> None:
        DECODED_IN.append(threading.get_ident())


DECODED_IN: list[int] = []


class Colour(enum.Enum):
    RED = "red"


class Painted(msgspec.Struct, forbid_unknown_fields=True):
    colour: Colour


def test_a_key_that_stands_twice_is_found_in_one_pass() -> None:
    names = [Counted(number) for number in range(1000)]
    Counted.looked_at = 0
    twice = Counted(999)
    assert first_repeated([*names, twice]) is twice
    assert Counted.looked_at <= 3 * 1001


def test_the_first_of_many_repeated_keys_is_named() -> None:
    labels = ",".join(f'"{number:x}":0' for number in range(_NAMES))
    assert repeated_key(b'{"labels":{%s}}' % labels.encode()) is None
    assert repeated_key(b'{"labels":{%s,"2a":1,"2b":1}}' % labels.encode()) == "2a"
    assert repeated_key(b'[{"a":1,"b":{"x":1,"x":2},"a":2}]') == "x"


@pytest.mark.parametrize(("text", "on_loop"), [("x" * 100, True), ("x" * ON_LOOP, False)])
async def test_a_large_body_is_decoded_aside(text: str, on_loop: bool) -> None:
    DECODED_IN.clear()
    raw = msgspec.json.encode({"text": text})
    note = await BodyDecoder(Note).received(raw)
    assert note.text == text
    assert ([threading.get_ident()] == DECODED_IN) is on_loop


async def test_a_large_body_is_refused_as_a_small_one_is() -> None:
    raw = b'{"text":"%s","text":""}' % (b"x" * ON_LOOP)
    with pytest.raises(Rejected) as refused:
        await BodyDecoder(Note).received(raw)
    assert refused.value.code is Code.INVALID_JSON


def test_a_body_with_too_many_entries_is_refused_before_it_is_decoded() -> None:
    DECODED_IN.clear()
    labels = {f"{number}": 0 for number in range(MOST_VALUES)}
    with pytest.raises(Rejected) as refused:
        BodyDecoder(Note).decode(msgspec.json.encode({"labels": labels}))
    assert (refused.value.code, DECODED_IN) == (Code.BODY_TOO_LARGE, [])
    note = BodyDecoder(Note).decode(msgspec.json.encode({"text": ",[" * MOST_VALUES}))
    assert len(note.text) == 2 * MOST_VALUES


@pytest.mark.parametrize(
    "body",
    [
        {"colour": "Object contains unknown field `" * _NAMES},
        {"colour": "Object missing required field `" * _NAMES},
        {"colour": "Invalid enum value '" * _NAMES + "x"},
        {"colour": " - at `$" * _NAMES},
        {"Object contains unknown field `" * _NAMES: 1},
        {" - at `key` in `$" * _NAMES: 1},
    ],
    ids=["unknown", "missing", "choice", "place", "name", "place in name"],
)
def test_a_refusal_of_long_words_reads_them_once(body: dict[str, Any]) -> None:
    """Patterns that were tried at every place of such a word took minutes."""
    with pytest.raises(Rejected) as refused:
        BodyDecoder(Painted).decode(msgspec.json.encode(body))
    assert refused.value.code in (Code.INVALID_FIELD, Code.UNKNOWN_FIELD)
    assert len(str(refused.value)) < 1000


def test_no_typo_is_looked_for_in_a_long_word() -> None:
    assert nearest("expire_in_seconds", ["expires_in_seconds"]) == "expires_in_seconds"
    assert nearest("x" * 201, ["x" * 200]) is None
