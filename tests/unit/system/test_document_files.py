"""Files with group documents: what is refused in them, and at which cost."""

from __future__ import annotations

import pytest

from corral.system.document_sets import Malformed, documents_in
from corral.testing.counted_calls import counted_calls


def test_a_key_that_stands_twice_is_found_in_one_pass() -> None:
    calls = []
    for size in (100, 1000):
        keys = [*(f"k{number}" for number in range(size)), "again", "again"]
        text = "{" + ", ".join(f'"{key}": 1' for key in keys) + "}"
        with counted_calls() as count, pytest.raises(Malformed, match="'again' stands twice"):
            documents_in("a.json", text)
        calls.append(count.calls)
    assert calls[1] < calls[0] + 100, "no key is looked up among the others"
