"""Failed logins in the audit: who was tried, how often and from where, in a few entries however many they are."""

from __future__ import annotations

import pathlib

import httpx
from browsers import LOGIN, log_in, make_user
from http_rig import Rig

from corral.controller.accounts.failed_logins import ACTION, MOST_NAMED, FailedLogins
from corral.store.store_errors import StoreUnavailable
from corral.testing.cluster import LocalCluster
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually


async def failures_in_audit(rig: Rig) -> dict[str, dict[str, object]]:
    async with rig.client() as admin:
        found = (await admin.get("/api/v1/audit", params={"action": ACTION})).json()["items"]
    assert {(each["actor"], each["outcome"]) for each in found} <= {("system", "refused")}
    return {each["subject"]: each["after"] for each in found}


def failures_of(rig: Rig) -> FailedLogins:
    return rig.leading.logins.password.failures


async def test_failures_are_summed_up_by_account_and_no_name_is_told_that_nobody_has(rig: Rig) -> None:
    await make_user(rig)
    for name in ("ada", "ADA", "hunter2-typed-as-a-name"):
        await log_in(rig, name, "wrong, and long enough")
    assert await failures_in_audit(rig) == {}, "not one by one"
    await failures_of(rig).store()
    found = await failures_in_audit(rig)
    assert (found["ada"]["failures"], found["ada"]["addresses"]) == (2, ["loopback"])
    assert (found[""]["failures"], found[""]["of_unknown_names"]) == (1, 1)
    assert "hunter2" not in str(found)
    await failures_of(rig).store()
    assert len(await failures_in_audit(rig)) == 2, "nothing is told twice"


async def test_a_flood_makes_a_few_entries_of_bounded_size(rig: Rig) -> None:
    failures = failures_of(rig)
    for number in range(500):
        failures.add(f"user-{number}", "192.0.2.1")
        for _ in range(3 if number < MOST_NAMED else 0):
            failures.add(f"user-{number}", f"192.0.2.{number}")
    for number in range(1000):
        failures.add("", f"2001:db8::{number}")
    await failures.store()
    found = await failures_in_audit(rig)
    assert set(found) == {*(f"user-{number}" for number in range(MOST_NAMED)), ""}
    rest = found[""]
    assert (rest["failures"], rest["accounts"]) == (1490, 490)
    assert len(rest["addresses"]) == 5  # type: ignore[arg-type]


async def test_failures_that_the_store_refuses_are_counted_on(rig: Rig) -> None:
    failures = failures_of(rig)
    failures.add("ada", "192.0.2.1")
    rig.store.commits.fail(*[StoreFault.BEFORE] * 3)
    try:
        await failures.store()
    except StoreUnavailable:
        failures.add("ada", "192.0.2.2")
    await eventually(lambda: rig.writer.healthy)
    await failures.store()
    assert (await failures_in_audit(rig))["ada"]["failures"] == 2


async def test_a_controller_writes_them_by_itself(scratch: pathlib.Path) -> None:
    async with LocalCluster(scratch) as cluster:
        controller = await cluster.controller()
        async with httpx.AsyncClient() as stranger:
            body = {"name": "admin", "password": "wrong, and long enough"}
            assert (await stranger.post(controller.url + LOGIN, json=body)).status_code == 401

        async def written() -> bool:
            page = await controller.call("GET", f"/api/v1/audit?action={ACTION}")
            return [each["subject"] for each in page["items"]] == ["admin"]

        await eventually(written)
