"""Who somebody is by the claims of a provider."""

from __future__ import annotations

from typing import Any

import pytest

from corral.controller.accounts.oidc.claims import OidcIdentity, identity_of, user_name
from corral.errors import Code, Rejected

ISSUER = "https://id.example.org/realms/a"


def identity(claims: dict[str, Any], *, groups_claim: str = "groups") -> OidcIdentity:
    return identity_of(
        {"sub": "42", **claims}, issuer=ISSUER, name_claim="preferred_username", groups_claim=groups_claim
    )


def test_name_and_groups_are_the_claims_that_are_configured() -> None:
    found = identity({"preferred_username": "alice", "groups": ["admins", "lobby", "admins"]})
    assert found == OidcIdentity(
        issuer=ISSUER,
        subject="42",
        name="alice",
        groups=("admins", "lobby"),
    )
    assert found.display_name == "alice (id.example.org)"


def test_a_user_is_issuer_and_subject_whatever_the_name() -> None:
    users = [
        user_name(ISSUER, "42"),
        user_name(ISSUER, "43"),
        user_name("https://id.example.org/realms/b", "42"),
        user_name(ISSUER + ":4", "2"),
    ]
    assert len(set(users)) == len(users)
    assert identity({"preferred_username": "admin"}).user_name == users[0]
    assert all(user.startswith("oidc:id.example.org:") for user in users)


def test_a_user_name_is_short_whatever_the_issuer() -> None:
    for issuer in ("https://" + "a" * 240, "https://[2001:db8::1]:8443", "http://127.0.0.1:1"):
        name = user_name(issuer, "x" * 255)
        assert len(name) <= 63
        assert name.count(":") == 2


@pytest.mark.parametrize("subject", [None, "", 7, ["a"], "x" * 256, "a\nb", "ä", "a\x7f", "\u202e"])
def test_a_subject_that_is_not_short_and_printable_is_refused(subject: Any) -> None:
    with pytest.raises(Rejected) as refused:
        identity({"sub": subject})
    assert refused.value.code is Code.OIDC_FAILED


@pytest.mark.parametrize("name", [None, 7, "", "  ", "x" * 101, "a\u202eb", "a\x1b[2J", ["a"]])
def test_a_name_that_cannot_be_shown_is_replaced_by_the_subject(name: Any) -> None:
    found = identity({"preferred_username": name})
    assert found.name == "42"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("admins", ("admins",)),
        (["a", 7, None, ["b"], {"c": 1}, "", " d", "e\n", "f" * 257, "g"], ("a", "g")),
        ({"admins": True}, ()),
        (None, ()),
        (7, ()),
    ],
)
def test_groups_are_texts_and_nothing_else(groups: Any, expected: tuple[str, ...]) -> None:
    assert identity({"groups": groups}).groups == expected


def test_groups_are_bounded_in_number() -> None:
    assert len(identity({"groups": [f"g{number}" for number in range(5000)]}).groups) == 1000


def test_a_claim_may_lie_within_another_or_have_dots_in_its_name() -> None:
    nested = {"realm_access": {"roles": ["a"]}}
    assert identity(nested, groups_claim="realm_access.roles").groups == ("a",)
    assert identity({"https://x.org/groups": ["b"]}, groups_claim="https://x.org/groups").groups == ("b",)
    assert identity({"realm_access": ["roles"]}, groups_claim="realm_access.roles").groups == ()


@pytest.mark.parametrize("verified", [None, False, "true", 1])
def test_an_address_of_mail_that_the_provider_has_not_checked_is_no_group(verified: Any) -> None:
    claims = {"email": "boss@example.org", "email_verified": verified}
    assert identity(claims, groups_claim="email").groups == ()
    assert identity({**claims, "email_verified": True}, groups_claim="email").groups == ("boss@example.org",)
