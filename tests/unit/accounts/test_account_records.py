"""Records of users, sessions and roles."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.accounts.records import (
    AGENT_MAX,
    SESSION_IDLE,
    SESSION_LIFE,
    AuthenticatedBy,
    RoleRecord,
    SessionRecord,
    UserLock,
    UserRecord,
    session_is_over,
    shown_agent,
    valid_display_name,
    valid_role_name,
    valid_user_name,
)
from corral.domain.bindings import Binding, Scope
from corral.domain.ids import UserName, UserSessionId
from corral.domain.permissions import Permission
from corral.errors import Rejected
from corral.store.port import encode

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def session(*, created: dt.timedelta, used: dt.timedelta) -> SessionRecord:
    """One that was made and used so long ago."""
    return SessionRecord(
        id=UserSessionId("ses-aaaaaaaaaaaa"),
        user=UserName("alice"),
        secret_sha256="0" * 64,
        csrf_sha256="1" * 64,
        created_at=NOW - created,
        last_used_at=NOW - used,
        authenticated_by=AuthenticatedBy.PASSWORD,
    )


@pytest.mark.parametrize("name", ["a", "admin", "alice@example.org", "a.b_c-d+e@x", "7", "a" * 63])
def test_names_of_users_may_be_addresses_of_mail(name: str) -> None:
    assert valid_user_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a" * 64,
        "Alice",
        "al ice",
        "-a",
        "a-",
        "a..b",
        "a/b",
        "älice",
        "alice\n",
        "a\x00",
        "\u202ea",
        "a:b",
    ],
)
def test_other_names_are_refused_with_the_rule_and_the_field(name: str) -> None:
    with pytest.raises(Rejected) as refused:
        valid_user_name(name, field="user")
    assert refused.value.field == "user"
    assert "use 1 to 63 of" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["system", "anonymous", "tok-k3v7q2m6x5pa", "ses-k3v7q2m6x5pa"])
def test_a_user_cannot_have_a_name_that_the_audit_has_for_others(name: str) -> None:
    with pytest.raises(Rejected, match="not available"):
        valid_user_name(name)


@pytest.mark.parametrize("name", ["admin", "Operator", "VIEWER", "Builders", ""])
def test_a_custom_role_is_never_taken_for_a_built_in_one(name: str) -> None:
    with pytest.raises(Rejected):
        valid_role_name(name)


def test_a_display_name_may_be_in_any_script_but_steers_no_terminal() -> None:
    assert valid_display_name(" Zoë Ångström ") == "Zoë Ångström"
    with pytest.raises(Rejected):
        valid_display_name("eve\u202ekcol")


def test_the_agent_of_a_browser_is_cut_and_cleaned() -> None:
    assert shown_agent("Mozilla/5.0 \x1b[31m(X11)") == "Mozilla/5.0 [31m(X11)"
    assert len(shown_agent("x" * 100_000)) == AGENT_MAX


@given(
    st.timedeltas(dt.timedelta(hours=-3), dt.timedelta(days=9)),
    st.timedeltas(dt.timedelta(hours=-3), dt.timedelta(days=9)),
)
def test_a_session_lives_twelve_hours_unused_and_seven_days_in_all(
    created: dt.timedelta, used: dt.timedelta
) -> None:
    over = session_is_over(session(created=created, used=used), NOW)
    if over:
        assert used >= SESSION_IDLE or created >= SESSION_LIFE or min(created, used) < -2 * HOUR
    else:
        assert used < SESSION_IDLE
        assert created < SESSION_LIFE


@pytest.mark.trap("T28")
def test_a_clock_that_is_set_back_by_an_hour_ends_no_session() -> None:
    assert not session_is_over(session(created=-HOUR, used=-HOUR), NOW)


def test_a_session_that_was_made_while_the_clock_was_years_ahead_does_not_live_for_years() -> None:
    assert session_is_over(session(created=dt.timedelta(days=-900), used=dt.timedelta(days=-900)), NOW)
    assert session_is_over(session(created=HOUR, used=dt.timedelta(days=-900)), NOW)


def test_limits_of_a_session_are_those_of_the_caller() -> None:
    record = session(created=2 * HOUR, used=HOUR)
    assert not session_is_over(record, NOW)
    assert session_is_over(record, NOW, idle=HOUR)
    assert session_is_over(record, NOW, life=2 * HOUR)


def test_a_user_is_stored_and_read_back_with_all_that_it_has() -> None:
    record = UserRecord(
        name=UserName("alice"),
        display_name="Alice",
        password_hash="$argon2id$…",
        must_change_password=True,
        totp_sealed="c2VhbGVk",
        last_totp_step=59,
        recovery_sha256=("0" * 64,),
        created_at=NOW,
        created_by="admin",
        locked=UserLock(by="admin", reason="left", at=NOW),
        bindings=(Binding(role="VIEWER", scope=Scope(groups=("lobby*",))),),
    )
    assert msgspec.json.decode(encode(record), type=UserRecord) == record


def test_permissions_of_a_newer_version_are_kept_and_allow_nothing() -> None:
    text = b'{"name":"x","permissions":["nodes.read","moons.read"],"created_at":"2026-03-01T12:00:00Z","created_by":"a"}'
    role = msgspec.json.decode(text, type=RoleRecord)
    assert role.granted == {Permission.NODES_READ}
    assert b'"moons.read","nodes.read"' in encode(role)
