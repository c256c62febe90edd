"""Whose doing it is that the zygote is lost again and again: the one is found, the others are not blamed."""

from __future__ import annotations

import pytest

from corral.modules.process.zygote_deaths import HOLD_SECONDS, MENDED, ZygoteDeaths


def losses_until_blamed(modules: list[str], killer: str, *, delay: float = 1.0, after: float = 0.3) -> int:
    """The killer kills some time after each of its starts; all others are started again with it."""
    losses, now, started = ZygoteDeaths(), 100.0, dict.fromkeys(modules, 100.0)
    for count in range(1, 50):
        now = started[killer] + after
        verdict = losses.lost({id: at for id, at in started.items() if at <= now}, now=now)
        if verdict.blamed:
            assert verdict.blamed == killer
            return count
        started = {id: now + delay + verdict.held.get(id, 0.0) for id in modules}
    raise AssertionError("nobody was blamed")


@pytest.mark.trap("T84")
@pytest.mark.parametrize("after", [0.3, 11.0, 40.0, 75.0])
@pytest.mark.parametrize(("others", "most"), [(0, MENDED + 1), (1, 6), (2, 7), (9, 11), (99, 17)])
def test_one_that_kills_it_after_its_start_is_found_among_all_others(
    others: int, most: int, after: float
) -> None:
    """However patient it is: 11 s, or longer than anybody is held back at first."""
    innocent = [f"m{number:02}" for number in range(others)]
    for place in range(0, others + 1, max(others // 7, 1)):
        modules = [*innocent[:place], "killer", *innocent[place:]]
        modules = [f"{index:03}-{id}" for index, id in enumerate(modules)]
        assert losses_until_blamed(modules, modules[place], after=after) <= most


@pytest.mark.trap("T84")
def test_an_innocent_that_is_started_again_and_again_is_not_blamed_for_one_that_waits_for_that() -> None:
    """It kills when it is old itself and somebody else is young: a recent start proves nothing."""
    losses = ZygoteDeaths()
    for count in range(20):
        now = count * 60.0
        started = {"innocent": now - 3, "killer": now - 3 - HOLD_SECONDS, "other": now - 50}
        if count % 2:
            del started["other"]
        assert losses.lost(started, now=now).blamed == ""


def test_one_that_is_left_is_cleared_by_a_loss_without_it() -> None:
    """Somebody from outside kills it every 30 s, whoever is there."""
    losses, modules = ZygoteDeaths(), ["a", "b", "c"]
    started = dict.fromkeys(modules, 0.0)
    for count in range(1, 40):
        now = count * 30.0
        alive = {id: at for id, at in started.items() if at <= now}
        verdict = losses.lost(alive, now=now)
        assert verdict.blamed == ""
        started |= {id: now + 1 + verdict.held.get(id, 0.0) for id in alive}


def test_losses_while_the_same_two_were_there_are_held_against_neither() -> None:
    losses = ZygoteDeaths()
    for count in range(20):
        now = count * 12.0
        verdict = losses.lost({"a": now - 11, "b": now - 100}, now=now)
        assert verdict.blamed == ""
        assert verdict.suspects == (frozenset("ab") if count else frozenset())


def test_losses_while_different_modules_were_there_are_held_against_nobody() -> None:
    losses = ZygoteDeaths()
    for count in range(20):
        now = count * 60.0
        assert losses.lost({"ab"[count % 2]: now - 1}, now=now).blamed == ""


def test_losses_that_are_far_apart_have_nothing_to_do_with_one_another() -> None:
    losses = ZygoteDeaths()
    assert all(losses.lost({"a": now}, now=now).blamed == "" for now in (0.0, 1000.0, 2000.0, 3000.0, 4000.0))
