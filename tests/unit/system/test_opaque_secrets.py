"""Opaque secrets, and the texts of credentials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.system.entropy import SystemEntropy
from corral.system.opaque_secrets import CredentialForm, new_secret, secret_digest, secret_matches

SESSIONS = CredentialForm("ses")
TOKENS = CredentialForm("tok", lead="corral_")


@pytest.mark.parametrize(("one", "other"), [("x", "y"), (b"x", b"y")])
def test_secrets_are_compared_by_digest(one: str | bytes, other: str | bytes) -> None:
    assert secret_matches(one, secret_digest(one))
    assert not secret_matches(other, secret_digest(one))


@pytest.mark.parametrize("stored", [None, "", "0" * 64])
def test_nothing_matches_where_nothing_is_stored(stored: str | None) -> None:
    assert not secret_matches("", stored)
    assert not secret_matches("x", stored)


def test_a_secret_has_256_bits_and_is_another_each_time() -> None:
    made = {new_secret(SystemEntropy()) for _ in range(50)}
    assert len(made) == 50
    assert {len(each) for each in made} == {52}


@pytest.mark.parametrize("form", [SESSIONS, TOKENS])
def test_a_new_credential_is_read_back_and_proven_by_its_digest(form: CredentialForm) -> None:
    made = form.create(SystemEntropy())
    id, secret = form.read(made.text)
    assert id == made.id
    assert secret_matches(secret, made.secret_sha256)
    assert secret not in (made.id, made.secret_sha256)


def test_a_credential_of_one_kind_is_none_of_another() -> None:
    assert SESSIONS.read(TOKENS.create(SystemEntropy()).text) == ("", "")
    assert TOKENS.read(SESSIONS.create(SystemEntropy()).text) == ("", "")


@given(st.text(max_size=100))
def test_any_other_text_is_read_as_nothing_and_can_be_compared(text: str) -> None:
    assert SESSIONS.read(text) == ("", "")
    assert not secret_matches(text, secret_digest(new_secret(SystemEntropy())))


def test_a_text_that_no_encoder_takes_is_compared_like_any_other() -> None:
    assert not secret_matches("\udcff", secret_digest("x"))
