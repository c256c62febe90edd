"""The access log is bounded for each caller, and says whose records it left out."""

from __future__ import annotations

import pytest

from corral.controller.http.server.access_log import AccessQuota


class Time:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def quota(time: Time) -> AccessQuota:
    return AccessQuota(monotonic=time)


def admitted(quota: AccessQuota, requests: int, **caller: str) -> int:
    return sum(quota.admit(**{"principal": "", "address": "10.0.0.1", **caller}) for _ in range(requests))


def test_a_principal_has_ten_records_a_second_after_a_burst(quota: AccessQuota, time: Time) -> None:
    assert admitted(quota, 1000, principal="token:a") == 50
    time.seconds += 3
    assert admitted(quota, 1000, principal="token:a") == 30
    assert admitted(quota, 7, principal="token:b") == 7, "others are not concerned"
    assert quota.take_skipped() == {"token:a": 950 + 970}
    assert not quota.take_skipped()


def test_callers_without_a_principal_share_one_a_second_of_their_address(
    quota: AccessQuota, time: Time
) -> None:
    assert admitted(quota, 100) == 20
    time.seconds += 3
    assert admitted(quota, 100) == 3
    assert admitted(quota, 5, address="10.0.0.2") == 5
    assert admitted(quota, 5, principal="token:a") == 5, "whoever has a token is not concerned"
    assert quota.take_skipped() == {"10.0.0.1": 80 + 97}


def test_many_addresses_have_no_more_than_all_of_them_may_and_take_little_memory(
    quota: AccessQuota, time: Time
) -> None:
    addresses = [f"10.{number >> 8}.{number & 255}.1" for number in range(20_000)]
    assert sum(admitted(quota, 1, address=address) for address in addresses) == 50
    time.seconds += 1
    assert sum(admitted(quota, 1, address=address) for address in addresses) == 10
    skipped = quota.take_skipped()
    assert skipped.total() == 40_000 - 60
    assert len(skipped) == 1001
    assert skipped["others"] > 30_000
