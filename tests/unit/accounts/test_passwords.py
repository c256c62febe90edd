"""Hashes of passwords: what they cost, how many at once, and their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import argon2
import pytest
from structlog.testing import capture_logs

from corral.controller.accounts.passwords import AT_ONCE, KEPT, PER_NETWORK, HashCost, Passwords
from corral.errors import Code, Rejected, Retryable
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually

CHEAP = HashCost(memory_kib=64, passes=1)
CHEAPER = HashCost(memory_kib=32, passes=1)
GOOD = "trombone kettle"


@pytest.fixture
async def passwords() -> AsyncIterator[Passwords]:
    made = Passwords(entropy=SystemEntropy(), cost=CHEAP)
    yield made
    await made.close()


async def test_a_password_fits_its_hash_and_no_other(passwords: Passwords) -> None:
    stored = await passwords.hash(GOOD)
    assert (await passwords.verify(GOOD, stored, user="alice")).matches
    assert not (await passwords.verify(GOOD + "s", stored, user="alice")).matches
    assert stored != await passwords.hash(GOOD), "each hash has a salt of its own"


async def test_a_hash_has_the_cost_that_the_specification_asks_for() -> None:
    passwords = Passwords(entropy=SystemEntropy())
    stored = await passwords.hash(GOOD)
    await passwords.close()
    assert stored.startswith("$argon2id$v=19$m=65536,t=3,p=1$")
    assert argon2.PasswordHasher().verify(stored, GOOD)


async def test_a_password_fits_however_its_characters_are_composed(passwords: Passwords) -> None:
    stored = await passwords.hash("Ångström und Zoë")
    assert (await passwords.verify("A\u030angstro\u0308m und Zoe\u0308", stored, user="alice")).matches


@pytest.mark.parametrize("password", [GOOD, "", "x", "\ud800 surrogate", "\x00"])
async def test_without_a_hash_nothing_fits(passwords: Passwords, password: str) -> None:
    with capture_logs() as logs:
        assert not (await passwords.verify(password, "", user="nobody")).matches
    assert logs == []


async def test_an_unknown_user_costs_as_much_as_a_known_one() -> None:
    """The hash that fits nothing has the parameters of all others."""
    passwords = Passwords(entropy=SystemEntropy(), cost=CHEAP)
    stored = await passwords.hash(GOOD)
    await passwords.close()
    assert argon2.extract_parameters(passwords.fits_nothing) == argon2.extract_parameters(stored)


async def test_a_login_upgrades_a_hash_of_another_cost(passwords: Passwords) -> None:
    earlier = Passwords(entropy=SystemEntropy(), cost=CHEAPER)
    old = await earlier.hash(GOOD)
    await earlier.close()
    assert (await passwords.verify("another password", old, user="alice")).new_hash == ""
    upgraded = await passwords.verify(GOOD, old, user="alice")
    assert upgraded.matches
    assert "m=64," in upgraded.new_hash
    again = await passwords.verify(GOOD, upgraded.new_hash, user="alice")
    assert (again.matches, again.new_hash) == (True, "")


@pytest.mark.parametrize(
    "stored",
    [
        "plain text",
        "$argon2id$v=19$m=64,t=1,p=1$",
        "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHRzYWx0$" + "A" * 43,
        "$argon2id$v=19$m=64,t=100000,p=1$c2FsdHNhbHRzYWx0$" + "A" * 43,
        "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$" + "A" * 43,
        "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$" + "A" * 43 + "\n",
    ],
)
async def test_a_stored_hash_that_cannot_be_used_fits_nothing_and_is_logged(
    passwords: Passwords, stored: str
) -> None:
    with capture_logs() as logs:
        assert not (await passwords.verify(GOOD, stored, user="alice")).matches
    assert [(each["event"], each["user"]) for each in logs] == [("password_hash.refused", "alice")]
    assert GOOD not in str(logs)


async def test_a_password_that_is_too_long_is_refused_before_it_is_hashed(passwords: Passwords) -> None:
    for call in (passwords.hash("x" * 300), passwords.verify("x" * 300, "", user="alice")):
        with pytest.raises(Rejected) as refused:
            await call
        assert refused.value.field == "password"


async def test_two_are_computed_at_once_some_wait_and_more_are_refused() -> None:
    passwords = Passwords(entropy=SystemEntropy(), cost=CHEAP, waiting=3)
    outcomes = await asyncio.gather(*(passwords.hash(GOOD) for _ in range(8)), return_exceptions=True)
    made = [each for each in outcomes if isinstance(each, str)]
    refused = [each for each in outcomes if isinstance(each, Retryable)]
    assert (len(made), len(refused)) == (AT_ONCE + 3, 3)
    assert {(each.code, each.retry_after) for each in refused} == {(Code.RATE_LIMITED, 2.0)}
    assert len([each for each in threading.enumerate() if "accounts/hash" in each.name]) <= AT_ONCE
    assert await passwords.hash(GOOD), "there is room again"
    await passwords.close()


async def test_a_caller_that_goes_away_gives_its_place_back_when_its_thread_is_through() -> None:
    passwords = Passwords(entropy=SystemEntropy(), cost=CHEAP, waiting=2)
    for _ in range(10):
        tasks = [asyncio.ensure_future(passwords.hash(GOOD)) for _ in range(AT_ONCE + 2)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert not any(
            isinstance(each, Retryable) and each.code is not Code.RATE_LIMITED for each in outcomes
        )
        await eventually(lambda: passwords.under_way == 0)
    assert await passwords.hash(GOOD)
    await passwords.close()


async def test_closing_refuses_those_that_wait_and_leaves_no_thread() -> None:
    passwords = Passwords(entropy=SystemEntropy())
    waiting = [asyncio.ensure_future(passwords.hash(GOOD)) for _ in range(6)]
    await asyncio.sleep(0)
    await passwords.close()
    await passwords.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, Retryable)]
    assert len(refused) >= 6 - AT_ONCE
    assert {each.code for each in refused} == {Code.SHUTTING_DOWN}
    assert not [each for each in threading.enumerate() if "accounts/hash" in each.name]
    with pytest.raises(Retryable) as late:
        await passwords.hash(GOOD)
    assert late.value.code is Code.SHUTTING_DOWN


async def test_strangers_take_no_place_of_other_networks_and_none_of_those_who_are_known() -> None:
    passwords = Passwords(entropy=SystemEntropy(), cost=CHEAP)
    networks = [f"2001:db8:{number}::/48" for number in range(5)]
    asked = [networks[0]] * (PER_NETWORK + 1) + [each for each in networks[1:] for _ in range(PER_NETWORK)]
    known = [""] * KEPT
    outcomes = await asyncio.gather(
        *(passwords.verify(GOOD, "", user="", network=each) for each in asked + known), return_exceptions=True
    )
    refused = [isinstance(each, Retryable) for each in outcomes]
    assert refused[: PER_NETWORK + 1] == [False] * PER_NETWORK + [True]
    assert refused[PER_NETWORK + 1 : -KEPT].count(True) == PER_NETWORK, "all strangers together have a share"
    assert not any(refused[-KEPT:])
    await passwords.close()
