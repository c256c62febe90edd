"""Credit: nobody has more under way than was granted."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import Rejected
from corral.wire.transfer import MAX_CREDIT, CreditWindow, Regrant


async def test_a_sender_takes_at_most_what_was_granted():
    window = CreditWindow(100)
    assert await window.take(60) == 60
    assert await window.take(60) == 40


async def test_a_sender_without_credit_waits_for_a_grant():
    window = CreditWindow(0)
    waiting = asyncio.create_task(window.take(10))
    await asyncio.sleep(0)
    assert not waiting.done()
    window.grant(4)
    assert await waiting == 4


async def test_a_sender_is_told_when_the_receiver_is_gone():
    window = CreditWindow(0)
    waiting = asyncio.create_task(window.take(10))
    await asyncio.sleep(0)
    window.close()
    assert await waiting == 0


@pytest.mark.parametrize("amount", [-1, MAX_CREDIT + 1])
async def test_credit_out_of_bounds_is_refused(amount):
    with pytest.raises(Rejected):
        CreditWindow(amount)


@given(st.integers(2, 1 << 20), st.lists(st.integers(0, 1 << 16), max_size=200))
def test_everything_consumed_is_granted_again_but_for_less_than_half_the_credit(credit, sizes):
    regrant = Regrant(credit)
    granted = sum(regrant.consumed(size) for size in sizes)
    assert 0 <= sum(sizes) - granted < max(1, credit // 2)
