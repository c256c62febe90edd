"""Whose doing it is that the zygote is lost again and again: the one is found, the others are not blamed."""

from __future__ import annotations

import pytest

from corral.modules.process.zygote_losses import MENDED, PROBATION_SECONDS, ZygoteLosses


def losses_until_blamed(modules: list[str], killer: str, *, delay: float = 1.0, after: float = 0.3) -> int:
    """The killer kills soon after each of its starts; all others are started again with it."""
    losses, now, started = ZygoteLosses(), 100.0, dict.fromkeys(modules, 100.0)
    for count in range(1, 50):
        now = started[killer] + after
        verdict = losses.lost({id: at for id, at in started.items() if at <= now}, now=now)
        if verdict.blamed:
            assert verdict.blamed == killer
            return count
        started = {id: now + delay + verdict.held.get(id, 0.0) for id in modules}
    raise AssertionError("nobody was blamed")


@pytest.mark.trap("T84")
@pytest.mark.parametrize(("others", "most"), [(0, MENDED + 1), (1, MENDED + 1), (2, 6), (9, 9), (99, 12)])
def test_one_that_kills_it_soon_after_its_start_is_found_among_all_others(others: int, most: int) -> None:
    innocent = [f"m{number:02}" for number in range(others)]
    for place in range(0, others + 1, max(others // 7, 1)):
        modules = [*innocent[:place], "killer", *innocent[place:]]
        modules = [f"{index:03}-{id}" for index, id in enumerate(modules)]
        assert losses_until_blamed(modules, modules[place]) <= most


def test_losses_that_are_far_from_any_start_are_held_against_nobody() -> None:
    losses = ZygoteLosses()
    for count in range(20):
        now = count * (PROBATION_SECONDS + 2)
        verdict = losses.lost({"a": now - PROBATION_SECONDS - 1, "b": now - 100}, now=now)
        assert (verdict.blamed, verdict.held) == ("", {})


def test_losses_after_starts_of_different_modules_are_held_against_nobody() -> None:
    losses = ZygoteLosses()
    for count in range(20):
        now = count * 60.0
        verdict = losses.lost({"a": now - 50 * (count % 2), "b": now - 50 * (1 - count % 2)}, now=now)
        assert verdict.blamed == ""


def test_losses_that_are_far_apart_have_nothing_to_do_with_one_another() -> None:
    losses = ZygoteLosses()
    assert all(losses.lost({"a": now}, now=now).blamed == "" for now in (0.0, 1000.0, 2000.0, 3000.0, 4000.0))
