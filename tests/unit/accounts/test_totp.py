"""Codes of the second factor, and recovery codes."""

from __future__ import annotations

import base64
import datetime as dt
import urllib.parse

import pyotp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.controller.accounts.recovery_codes import new_recovery_codes, without_used
from corral.controller.accounts.totp import (
    STEP_SECONDS,
    accepted_step,
    new_totp_secret,
    provisioning_uri,
    seal_totp,
    secret_text,
    unseal_totp,
)
from corral.domain.ids import UserName
from corral.errors import Code, Rejected
from corral.pki.keys import ClusterKey
from corral.system.entropy import SystemEntropy

ENTROPY = SystemEntropy()
ALICE, BOB = UserName("alice"), UserName("bob@example.org")
RFC_SECRET = b"12345678901234567890"


def at(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def code_of(secret: bytes, step: int) -> str:
    """As an app has it."""
    return pyotp.HOTP(base64.b32encode(secret).decode()).at(step)


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")],
)
def test_the_codes_are_those_of_the_standard(seconds: int, code: str) -> None:
    assert accepted_step(RFC_SECRET, code, now=at(seconds), last_step=0) == seconds // STEP_SECONDS


@given(st.integers(min_value=100, max_value=2**31), st.integers(min_value=-5, max_value=5))
def test_a_code_is_accepted_one_step_early_or_late_and_no_more(step: int, distance: int) -> None:
    accepted = accepted_step(
        RFC_SECRET, code_of(RFC_SECRET, step), now=at((step + distance) * 30), last_step=0
    )
    if abs(distance) <= 1:
        assert accepted == step or code_of(RFC_SECRET, step) == code_of(RFC_SECRET, accepted or 0)
    elif accepted is not None:  # another step happens to have the same digits
        assert code_of(RFC_SECRET, accepted) == code_of(RFC_SECRET, step)


def test_each_code_is_accepted_once() -> None:
    now = at(1_800_000_015)
    present = 1_800_000_015 // 30
    code = code_of(RFC_SECRET, present)
    last = accepted_step(RFC_SECRET, code, now=now, last_step=0)
    assert last == present
    assert accepted_step(RFC_SECRET, code, now=now, last_step=last) is None
    assert accepted_step(RFC_SECRET, code_of(RFC_SECRET, present - 1), now=now, last_step=last) is None
    assert accepted_step(RFC_SECRET, code_of(RFC_SECRET, present + 1), now=now, last_step=last) == present + 1


@pytest.mark.trap("T28")
def test_a_clock_that_is_set_back_makes_no_used_code_valid_again() -> None:
    first, later = 1_800_000_000, 1_800_003_600
    used = accepted_step(RFC_SECRET, code_of(RFC_SECRET, first // 30), now=at(first), last_step=0)
    assert used is not None
    last = accepted_step(RFC_SECRET, code_of(RFC_SECRET, later // 30), now=at(later), last_step=used)
    assert last is not None
    assert accepted_step(RFC_SECRET, code_of(RFC_SECRET, used), now=at(first), last_step=last) is None


@pytest.mark.parametrize("shown", ["287 082", " 287082 ", "287-082"])
def test_a_code_may_be_typed_with_gaps(shown: str) -> None:
    assert accepted_step(RFC_SECRET, shown, now=at(59), last_step=0) == 1


@given(st.text(max_size=40) | st.just("२८७०८२") | st.just("\udcff") | st.just("2" * 100_000))
def test_any_other_text_is_refused(text: str) -> None:
    step = accepted_step(RFC_SECRET, text, now=at(59), last_step=0)
    assert step is None or code_of(RFC_SECRET, step) in text


def test_the_app_reads_secret_user_and_cluster() -> None:
    secret = new_totp_secret(ENTROPY)
    assert len(secret) == 20
    uri = provisioning_uri(secret, user=BOB, cluster="my: cluster & more")
    read = pyotp.parse_uri(uri)
    assert isinstance(read, pyotp.TOTP)
    assert (read.issuer, read.interval, read.digits) == ("my: cluster & more", 30, 6)
    assert read.byte_secret() == secret
    assert BOB in urllib.parse.unquote(uri)
    assert secret_text(secret).replace(" ", "") == read.secret


def test_a_sealed_secret_opens_for_its_user_and_with_the_key_of_the_cluster_only() -> None:
    key, secret = ClusterKey(ENTROPY.secret(32)), new_totp_secret(ENTROPY)
    sealed = seal_totp(secret, user=ALICE, key=key, entropy=ENTROPY)
    assert unseal_totp(sealed, user=ALICE, key=key) == secret
    other = ClusterKey(ENTROPY.secret(32))
    for text, user, with_key in [
        (sealed, BOB, key),
        (sealed, ALICE, other),
        ("x", ALICE, key),
        ("", ALICE, key),
    ]:
        with pytest.raises(Rejected, match=f"second factor of user '{user}'") as refused:
            unseal_totp(text, user=user, key=with_key)
        assert refused.value.code is Code.FORMAT_INVALID
        assert "cluster key file" in (refused.value.hint or "")


def test_ten_recovery_codes_are_accepted_once_each() -> None:
    codes = new_recovery_codes(ENTROPY)
    assert len(set(codes.texts)) == len(set(codes.digests)) == 10
    left: tuple[str, ...] | None = codes.digests
    for number, text in enumerate(codes.texts, start=1):
        assert left is not None
        left = without_used(left, text)
        assert left is not None
        assert len(left) == 10 - number
        assert without_used(left, text) is None


def test_a_recovery_code_is_understood_as_people_type_it() -> None:
    plain = "abol2lbo34567xyz"
    digests = new_recovery_codes(ENTROPY).digests
    entropy = base64.b32decode(plain.upper())

    class Fixed(SystemEntropy):
        def secret(self, size: int) -> bytes:
            return entropy[:size]

    codes = new_recovery_codes(Fixed())
    assert codes.texts[0] == "abol-2lbo-3456-7xyz"
    for typed in ["ABOL-2LBO-3456-7XYZ", " abol2lbo34567xyz ", "a80l 218o 3456 7xyz", "abo1-21bo-3456-7xyz"]:
        assert without_used(codes.digests, typed) == ()
        assert without_used(digests, typed) is None


@given(st.text(max_size=100))
def test_no_other_text_is_a_recovery_code(text: str) -> None:
    digests = new_recovery_codes(ENTROPY).digests
    assert without_used(digests, text) is None
    assert without_used((), text) is None
