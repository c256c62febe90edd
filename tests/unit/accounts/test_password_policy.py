"""Which passwords are accepted."""

from __future__ import annotations

import contextlib
import secrets
import string
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.accounts.common_passwords import WORDS
from corral.domain.accounts.password_policy import check_new_password, normal_password, part_count
from corral.errors import Code, Rejected

NAMES = ("alice", "Alice Liddell", "winterpark")


def refusal(password: str) -> Rejected:
    with pytest.raises(Rejected) as refused:
        check_new_password(password, names=NAMES, field="new_password")
    assert refused.value.code is Code.INVALID_FIELD
    assert refused.value.field == "new_password"
    assert refused.value.hint
    assert not password or password not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(
    "password",
    [
        "password1234",
        "P@ssw0rd-2026!",
        "Passw0rd2024!!",
        "1234567890ab",
        "123456789101112",
        "aaaaaaaaaaaa",
        "qwertyuiop123",
        "1q2w3e4r5t6y",
        "zaq12wsxcde3",
        "abcdefghijkl",
        "letmeinletmein",
        "xyz7xyz7xyz7",
        "correcthorsebatterystaple",
        "iloveyou1234",
        "Minecraft2026!",
        "administrator1",
        "Sommer2026!!!",
        "ｐａｓｓｗｏｒｄ１２３４",
    ],
)
def test_what_everybody_tries_first_is_refused(password: str) -> None:
    assert "tried first" in refusal(password).message


@pytest.mark.parametrize("password", ["alice1234567", "Liddell-2026!", "aliceLiddell1", "Winterpark2026"])
def test_the_names_of_the_user_do_not_help(password: str) -> None:
    assert "tried first" in refusal(password).message


@pytest.mark.parametrize(
    "password",
    [
        "trombone kettle",
        "k9fT2vQx8Lm1",
        "834729105663",
        "purple-monkey-dishwasher",
        "dragon monkey shadow master",
        "Mit 17 Zwergen im Wald",
        "пароль от сервера",
        "密碼密碼很長很長的一個密碼",
        "              x y z q r s",
    ],
)
def test_long_and_uncommon_ones_are_accepted_whatever_they_are_made_of(password: str) -> None:
    assert check_new_password(password, names=NAMES) == password


@given(st.integers())
def test_what_a_password_manager_makes_is_accepted(seed: int) -> None:
    random = Random(seed)
    made = "".join(random.choice(string.ascii_letters + string.digits) for _ in range(16))
    assert check_new_password(made) == made


@given(
    st.lists(
        st.sampled_from(sorted(WORDS)) | st.from_regex(r"(19|20)[0-9]{2}", fullmatch=True),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([str.lower, str.upper, str.title]),
)
def test_no_four_common_words_are_accepted_in_any_case(words: list[str], case) -> None:
    assert part_count(case("".join(words))) <= 4


@given(st.text(max_size=300))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    with contextlib.suppress(Rejected):
        assert len(check_new_password(text)) >= 12


@pytest.mark.parametrize("password", ["", "short", "k9fT2vQx8Lm"])
def test_fewer_than_twelve_characters_are_refused_with_their_number(password: str) -> None:
    assert f"has {len(password)} characters" in refusal(password).message


@pytest.mark.parametrize("password", ["x" * 257, "x" * 1_000_000, "\U0001f600" * 257, "\ufdfa" * 100])
def test_one_that_is_too_long_is_refused_before_it_is_looked_at(password: str) -> None:
    assert "longer than" in refusal(password).message
    with pytest.raises(Rejected):
        normal_password(password)


@pytest.mark.parametrize("sign", ["\x00", "\n", "\x1b", "\ud800", "\u0378"])
def test_characters_that_cannot_be_typed_everywhere_are_refused(sign: str) -> None:
    assert f"U+{ord(sign):04X}" in refusal("k9fT2vQx8Lm1" + sign).message


def test_a_password_is_the_same_however_a_system_composes_its_characters() -> None:
    assert normal_password("Zoe\u0308 und A\u030angstro\u0308m") == normal_password("Zoë und Ångström")


def test_a_long_password_of_any_kind_is_read_quickly() -> None:
    """Each place is looked at once: no password makes the check slow."""
    for text in ["q1" * 128, "password" * 32, secrets.token_hex(128), "a" * 256, "12" * 128]:
        assert 1 <= part_count(text) <= 5
