"""One-time codes: once, for a time, and not too many."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from corral.controller.accounts.one_time_codes import OneTimeCodes
from corral.errors import Code, Retryable
from corral.system.entropy import SystemEntropy
from corral.testing.stepped_clock import SteppedClock


def codes(
    clock: SteppedClock, *, life: float | None = 60.0, most: int = 100, per_owner: int = 0
) -> OneTimeCodes[str, str]:
    return OneTimeCodes(
        clock=clock, entropy=SystemEntropy(), life_seconds=life, most=most, most_per_owner=per_owner
    )


def test_a_code_is_redeemed_once() -> None:
    kept = codes(SteppedClock())
    text = kept.issue("alice", "value")
    assert kept.redeem(text) == "value"
    assert kept.redeem(text) is None


@pytest.mark.parametrize("text", ["", "x", "x" * 1_000_000, "\udcff"])
def test_an_unknown_code_is_worth_nothing(text: str) -> None:
    kept = codes(SteppedClock())
    kept.issue("alice", "value")
    assert kept.redeem(text) is None
    assert len(kept) == 1


def test_a_code_expires() -> None:
    clock = SteppedClock()
    kept = codes(clock)
    late, early = kept.issue("alice", "a"), kept.issue("alice", "b")
    clock.pass_time(30)
    assert kept.redeem(early) == "b"
    clock.pass_time(31)
    assert kept.redeem(late) is None
    assert len(kept) == 0


@pytest.mark.trap("T28")
@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_code(step: float) -> None:
    clock = SteppedClock()
    kept = codes(clock)
    first, second = kept.issue("alice", "a"), kept.issue("alice", "b")
    clock.step(step)
    assert kept.redeem(first) == "a"
    clock.pass_time(61)
    assert kept.redeem(second) is None


def test_a_code_without_a_life_is_valid_until_it_is_used_or_revoked() -> None:
    clock = SteppedClock()
    kept = codes(clock, life=None)
    first, second = kept.issue("first admin", "a"), kept.issue("first admin", "b")
    clock.pass_time(10_000_000)
    assert kept.redeem(first) == "a"
    kept.revoke("first admin")
    assert kept.redeem(second) is None


def test_no_code_is_dropped_for_another() -> None:
    clock = SteppedClock()
    kept = codes(clock, most=2)
    first = kept.issue("alice", "a")
    kept.issue("bob", "b")
    with pytest.raises(Retryable) as refused:
        kept.issue("carol", "c")
    assert refused.value.code is Code.RATE_LIMITED
    assert refused.value.retry_after == 60.0
    assert kept.redeem(first) == "a"
    assert kept.issue("carol", "c")


def test_one_owner_does_not_take_the_room_of_others() -> None:
    clock = SteppedClock()
    kept = codes(clock, per_owner=1)
    kept.issue("greedy", "a")
    with pytest.raises(Retryable):
        kept.issue("greedy", "b")
    assert kept.issue("other", "c")
    clock.pass_time(61)
    assert kept.issue("greedy", "d")


class CodesOverTime(RuleBasedStateMachine):
    """Against a model that remembers everything."""

    issued = Bundle("issued")

    def __init__(self) -> None:
        super().__init__()
        self.clock = SteppedClock()
        self.kept = codes(self.clock, life=1000.0, most=8, per_owner=4)
        self.passed = 0
        self.open: dict[str, tuple[str, int]] = {}

    def _live(self) -> dict[str, tuple[str, int]]:
        return {text: (owner, at) for text, (owner, at) in self.open.items() if self.passed < at + 1000}

    @rule(target=issued, owner=st.sampled_from("abc"))
    def issue(self, owner: str) -> str:
        live = self._live()
        full = len(live) >= 8 or sum(each == owner for each, _ in live.values()) >= 4
        try:
            text = self.kept.issue(owner, owner)
        except Retryable:
            assert full
            return "none"
        assert not full
        self.open[text] = (owner, self.passed)
        return text

    @rule(text=issued)
    def redeem(self, text: str) -> None:
        expected = self._live().get(text)
        assert self.kept.redeem(text) == (expected[0] if expected else None)
        self.open.pop(text, None)

    @rule(owner=st.sampled_from("abc"))
    def revoke(self, owner: str) -> None:
        self.kept.revoke(owner)
        self.open = {text: code for text, code in self.open.items() if code[0] != owner}

    @rule(seconds=st.sampled_from([300, 600, 1001]))
    def wait(self, seconds: int) -> None:
        self.clock.pass_time(seconds)
        self.passed += seconds

    @invariant()
    def holds_what_is_open(self) -> None:
        assert len(self.kept) == len(self._live())


TestCodesOverTime = CodesOverTime.TestCase
