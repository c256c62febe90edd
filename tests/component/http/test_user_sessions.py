"""Sessions: listed, ended, counted, renewed; and what ends with them."""

from __future__ import annotations

import datetime as dt
import pathlib

import pytest
from browsers import LOGIN, OTHER, PASSWORD, browser, command_line, log_in, make_user, refused, session_client
from http_rig import Rig, http_rig
from sse_client import following

from corral.controller.accounts.user_sessions import MOST_PER_USER, USE_STORED_AFTER
from corral.domain.accounts.records import SESSION_IDLE, SESSION_LIFE
from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually

ME = "/api/v1/auth/me"
OWN = "/api/v1/auth/sessions"
ALL = "/api/v1/sessions"


async def test_everybody_sees_and_ends_the_own_sessions_and_no_others(rig: Rig) -> None:
    await make_user(rig, role="VIEWER")
    await make_user(rig, "bob", role="VIEWER")
    async with browser(rig) as ada, browser(rig), browser(rig, "bob") as bob:
        mine = (await ada.get(OWN)).json()["items"]
        assert [each["current"] for each in mine].count(True) == 1
        assert len(mine) == 2
        assert mine[0]["address"] == "127.0.0.1", "one's own address is not hidden"
        others = next(each["id"] for each in mine if not each["current"])
        assert refused(await bob.delete(f"{OWN}/{others}")) == "NOT_FOUND"
        assert (await ada.get(ALL)).status_code == 403
        assert (await ada.delete(f"{OWN}/{others}")).status_code == 204
        assert len((await ada.get(OWN)).json()["items"]) == 1
        assert (await ada.get(ME)).status_code == 200


async def test_an_administrator_sees_and_ends_the_sessions_of_all(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada, rig.client() as admin:
        (shown,) = (await admin.get(ALL, params={"user": "ada"})).json()["items"]
        assert (shown["user"], shown["address"]) == ("ada", "127.0.0.1")
        nobody = await admin.get(ALL, params={"user": "bob"})
        assert (nobody.status_code, refused(nobody)) == (404, "NOT_FOUND")
        assert (await admin.delete(f"{ALL}/{shown['id']}")).status_code == 204
        answer = await ada.get(ME)
        assert answer.json()["error"]["message"] == "the session is not known here, or was ended"
    (entry,) = await rig.audits("sessions.end")
    assert (entry["subject"], entry["before"]["user"]) == (shown["id"], "ada")


async def test_who_may_less_does_not_end_the_session_of_who_may_more(rig: Rig) -> None:
    await make_user(rig, "boss", role="ADMIN")
    async with rig.client() as admin:
        role = {"name": "desk", "permissions": ["sessions.read", "sessions.manage", "self.read"]}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
    await make_user(rig, "clerk", role="desk")
    async with browser(rig, "boss"), browser(rig, "clerk") as clerk:
        (theirs,) = (await clerk.get(ALL, params={"user": "boss"})).json()["items"]
        assert theirs["address"] == "•••", "where people are is sensitive"
        assert refused(await clerk.delete(f"{ALL}/{theirs['id']}")) == "FORBIDDEN"


ENDINGS = [
    "logout",
    "ended",
    "ended by an administrator",
    "password",
    "new password",
    "lock",
    "removal",
    "roles",
]


@pytest.mark.trap("T25")
@pytest.mark.parametrize("how", ENDINGS)
async def test_what_ends_a_session_ends_its_streams_within_a_second(rig: Rig, how: str) -> None:
    await make_user(rig)
    async with (
        rig.client() as admin,
        browser(rig) as ada,
        browser(rig) as elsewhere,
        following(ada) as stream,
    ):
        await stream.frame()
        id = (await ada.get(ME)).json()["session"]["id"]
        match how:
            case "logout":
                answer = await ada.post("/api/v1/auth/logout")
                assert "Max-Age=0" in answer.headers["set-cookie"]
            case "ended":
                answer = await elsewhere.delete(f"{OWN}/{id}")
            case "ended by an administrator":
                answer = await admin.delete(f"{ALL}/{id}")
            case "password":
                answer = await elsewhere.post(
                    "/api/v1/auth/password", json={"current": PASSWORD, "new": OTHER}
                )
            case "new password":
                answer = await admin.post("/api/v1/users/ada/password", json={"password": OTHER})
            case "lock":
                answer = await admin.post("/api/v1/users/ada/lock", json={"reason": "left"})
            case "removal":
                answer = await admin.delete("/api/v1/users/ada")
            case "roles":
                answer = await admin.patch("/api/v1/users/ada", json={"bindings": [{"role": "VIEWER"}]})
        assert answer.status_code in (200, 204), answer.text
        assert (await stream.end(deadline=1.0)).startswith("the session was ended")
        assert (await ada.get(ME)).status_code == 401


@pytest.mark.trap("T25")
async def test_a_role_that_is_narrowed_ends_the_streams_of_sessions_and_not_the_sessions(rig: Rig) -> None:
    async with rig.client() as admin:
        role = {"name": "reader", "permissions": ["events.read", "groups.read"]}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
        await make_user(rig, role="reader")
        async with browser(rig) as ada, following(ada) as stream:
            await stream.frame()
            assert (
                await admin.patch("/api/v1/roles/reader", json={"permissions": ["groups.read"]})
            ).is_success
            assert "has changed" in await stream.end(deadline=1.0)
            assert (await ada.get("/api/v1/groups")).status_code == 200
            assert (await ada.get("/api/v1/events")).status_code == 403


async def test_a_role_that_grants_more_ends_the_sessions_of_those_who_have_it(rig: Rig) -> None:
    async with rig.client() as admin:
        assert (
            await admin.post("/api/v1/roles", json={"name": "r", "permissions": ["groups.read"]})
        ).is_success
        await make_user(rig, role="r")
        async with browser(rig) as ada:
            more = {"permissions": ["groups.read", "nodes.read"]}
            assert (await admin.patch("/api/v1/roles/r", json=more)).is_success
            assert (await ada.get(ME)).status_code == 401


async def test_a_ticket_of_a_session_opens_a_stream_and_is_void_with_the_session(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada, rig.client("") as page:
        tickets = [(await ada.post("/api/v1/events/tickets")).json()["ticket"] for _ in range(2)]
        async with following(page, params={"ticket": tickets[0]}) as stream:
            await stream.frame()
            await ada.post("/api/v1/auth/logout")
            assert (await stream.end(deadline=1.0)).startswith("the session was ended")
        late = await page.get("/api/v1/events/stream", params={"ticket": tickets[1]})
        assert (late.status_code, late.json()["error"]["message"]) == (
            401,
            "the ticket is void: the session was ended",
        )


async def test_a_download_comes_with_a_ticket(rig: Rig) -> None:
    await rig.template("base", {"a.txt": b"alpha"})
    await make_user(rig)
    async with browser(rig) as ada, rig.client("") as page:
        ticket = (await ada.post("/api/v1/events/tickets")).json()["ticket"]
        path = "/api/v1/templates/base/-/files/a.txt"
        assert (await page.get(path, params={"ticket": ticket})).content == b"alpha"
        assert (await page.get(path, params={"ticket": ticket})).status_code == 401


@pytest.mark.trap("T92")
async def test_limits_count_for_a_person_over_all_sessions(data: pathlib.Path) -> None:
    limits = HttpLimitsSection(
        requests_per_second=5, burst=20, streams=2, tickets=2, logins_per_minute=0, uploads=0
    )
    async with http_rig(data, limits=limits) as rig:
        await make_user(rig)
        await make_user(rig, "bob")
        async with browser(rig) as one, browser(rig) as two, browser(rig, "bob") as bob:
            async with following(one), following(two):
                await eventually(lambda: len(rig.leading.streams) == 2)
                third = await two.get("/api/v1/events/stream")
                assert third.json()["error"]["message"] == "the user has 2 streams open already"
                async with following(bob) as others:
                    await others.frame()
            for client in (one, two):
                assert (await client.post("/api/v1/events/tickets")).is_success
            assert refused(await two.post("/api/v1/events/tickets")) == "RATE_LIMITED"
            codes = [(await client.get(ME)).status_code for _ in range(20) for client in (one, two)]
            assert 429 in codes
            assert (await bob.get(ME)).status_code == 200


async def test_a_session_ends_after_twelve_hours_without_use_and_after_a_week(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        used = dt.timedelta()
        while used < SESSION_LIFE - SESSION_IDLE:
            used += SESSION_IDLE - dt.timedelta(minutes=1)
            rig.clock.offset = used
            assert (await ada.get(ME)).status_code == 200
        rig.clock.offset = SESSION_LIFE
        answer = await ada.get(ME)
        assert answer.json()["error"]["message"] == "the session ended after 7 days"


async def test_uses_are_stored_now_and_then_and_sessions_that_are_over_are_removed(rig: Rig) -> None:
    await make_user(rig)
    await make_user(rig, "bob")
    await log_in(rig, "bob")
    async with browser(rig) as ada:
        (bob, own) = sorted(rig.state.user_sessions, key=lambda each: each.record.user == "ada")
        rig.clock.offset = USE_STORED_AFTER - dt.timedelta(minutes=1)
        assert (await ada.get(ME)).is_success
        assert rig.leading.user_sessions.upkeep(rig.clock.now()) == []
        rig.clock.offset = USE_STORED_AFTER + dt.timedelta(minutes=1)
        assert (await ada.get(ME)).is_success
        await rig.ledger.commit(*rig.leading.user_sessions.upkeep(rig.clock.now()))
        kept = rig.state.user_sessions.require(own.record.id).record
        assert kept.last_used_at - own.record.last_used_at >= USE_STORED_AFTER
        rig.clock.offset = SESSION_IDLE + dt.timedelta(minutes=2)
        await rig.ledger.commit(*rig.leading.user_sessions.upkeep(rig.clock.now()))
        assert rig.state.user_sessions.find(bob.record.id) is None
        assert rig.state.user_sessions.find(own.record.id) is not None


async def test_a_user_has_a_bounded_number_of_sessions(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as first:
        for _ in range(MOST_PER_USER - 1):
            assert (await log_in(rig)).is_success
        rig.clock.offset = dt.timedelta(minutes=1)
        assert (await first.get(ME)).is_success
        assert (await log_in(rig)).is_success
        assert (await first.get(ME)).is_success, "one that was unused for longer made room"
        assert len(rig.state.user_sessions) == MOST_PER_USER


async def test_an_idempotency_key_of_a_session_is_its_own(rig: Rig) -> None:
    await make_user(rig)
    body, key = {"name": "lobby", "command": ["x"]}, {"Idempotency-Key": "k-1"}
    async with browser(rig) as ada, command_line(rig) as line:
        first = await ada.post("/api/v1/groups", json=body, headers=key)
        again = await ada.post("/api/v1/groups", json=body, headers=key)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.headers["idempotency-replayed"] == "true"
        assert refused(await line.post("/api/v1/groups", json=body, headers=key)) == "ALREADY_EXISTS"


async def test_a_token_has_no_session_to_end(rig: Rig) -> None:
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as script:
        assert refused(await script.post("/api/v1/auth/logout")) == "CONFLICT"
        assert (await script.get(OWN)).json() == {"items": [], "next": None}


async def test_cookies_over_tls_are_of_this_host_alone(data: pathlib.Path) -> None:
    """By the word of a trusted proxy, as by our own certificate."""
    from corral.controller.http.messages.request import HttpRequest
    from corral.controller.http.pipeline.session_cookie import cookie_name, set_cookie
    from corral.domain.ids import ClusterId
    from corral.system.entropy import SystemEntropy

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    scope = {
        "type": "http",
        "scheme": "https",
        "path": LOGIN,
        "query_string": b"",
        "headers": [],
        "server": ("127.0.0.1", 8480),
    }
    request = HttpRequest(scope, nothing, nothing, entropy=SystemEntropy())
    cluster = ClusterId("abcdefghijkl")
    assert cookie_name(request, cluster) == "__Host-corral-abcdefgh"
    ((name, value),) = set_cookie(request, cluster, "x")
    assert name == b"set-cookie"
    assert value.endswith(b"; HttpOnly; SameSite=Strict; Secure")
    del data


async def test_what_a_session_does_is_audited_as_its_user(rig: Rig) -> None:
    await make_user(rig, display_name="Ada L.")
    async with session_client(rig, await log_in(rig)) as ada:
        assert (await ada.post("/api/v1/groups", json={"name": "lobby", "command": ["x"]})).is_success
    (entry,) = await rig.audits("groups.create")
    assert (entry["actor"], entry["actor_name"]) == ("user:ada", "Ada L.")
