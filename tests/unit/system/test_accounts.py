"""Accounts of this machine, found by name and by number."""

from __future__ import annotations

import os
import pwd

import pytest

from corral.system.accounts import LAST_ID, Account, find_account, find_group, is_id, is_taken, name_of

ROOT = pwd.getpwuid(0)


@pytest.mark.parametrize("user", [ROOT.pw_name, "0"])
def test_an_account_is_found_by_its_name_and_by_its_number(user: str) -> None:
    assert find_account(user) == Account(name=ROOT.pw_name, uid=0, gid=ROOT.pw_gid, home=ROOT.pw_dir)


@pytest.mark.parametrize(
    "user", ["", "no such user", "zero\0byte", "x" * 65, str(LAST_ID), str(LAST_ID + 1), "9" * 30, "٣", "-1"]
)
def test_what_is_no_account_is_not_found_whatever_it_looks_like(user: str) -> None:
    assert find_account(user) is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("0", True),
        (str(LAST_ID), True),
        (str(LAST_ID + 1), False),
        ("", False),
        ("-1", False),
        ("٣", False),
        ("1" * 11, False),
    ],
)
def test_an_id_is_a_number_that_the_kernel_takes_for_one(text: str, is_one: bool) -> None:
    assert is_id(text) is is_one


def test_a_number_without_an_account_is_its_own_name() -> None:
    assert name_of(LAST_ID) == str(LAST_ID)
    assert name_of(os.geteuid()) == pwd.getpwuid(os.geteuid()).pw_name


def test_numbers_of_accounts_and_groups_are_taken_and_others_are_not() -> None:
    assert is_taken(0)
    assert not is_taken(LAST_ID)
    assert find_group("no such group") is None
