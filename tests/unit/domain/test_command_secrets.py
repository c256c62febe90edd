"""Command lines without the secrets that may be in them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.command_secrets import may_hold_secret, without_secrets


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("instance list", "instance list"),
        ("echo 'a b'", "echo 'a b'"),
        ("token create --name ci", "token create --name ci"),
        (
            "module config a --set key=x --set b=y -o json",
            "module config a --set key=••• --set b=••• -o json",
        ),
        ("module config a --set=key=x", "module config a --set=key=•••"),
        ("instance create a --var 'K=x y'", "instance create a --var K=•••"),
        ("module config a --set x", "module config a --set •••"),
        ("module config a --set", "module config a --set"),
        ("module config a --set --key=x b", "module config a --set --key=••• b"),
        ("--token abc whoami", "--token ••• whoami"),
        ("--token=abc whoami", "--token=••• whoami"),
        ("whoami corral_tok_1", "whoami •••"),
        ("instance exec a -- login password geheim", "instance exec a -- login password •••"),
        ("instance exec a 'login password=geheim now'", "instance exec a 'login password='•••"),
        ("instance exec a 'Authorization: Bearer geheim'", "instance exec a 'Authorization: Bearer '•••"),
        ("module x --db-password geheim", "module x --db-password •••"),
        (
            "catalog add a 1 --from https://example.org/x.jar",
            "catalog add a 1 --from https://example.org/x.jar",
        ),
        (
            "catalog add a 1 --from 'https://u:p@e.org/x.jar?sig=s#f'",
            "catalog add a 1 --from https://e.org/x.jar",
        ),
        ("catalog add a 1 --from='https://key@e.org/x?k=s'", "catalog add a 1 --from=https://e.org/x"),
        ("catalog https://key@e.org/x", "catalog https://e.org/x"),
        ("module config a --se't' key=geheim", "module config a --set key=•••"),
    ],
)
def test_values_that_may_be_secret_are_replaced(line: str, shown: str) -> None:
    assert without_secrets(line, shlex.split(line)) == shown


@given(
    st.lists(st.text(min_size=1)),
    st.sampled_from(["--set", "--var", "--token", "--password"]),
    st.booleans(),
    st.lists(st.text()),
)
def test_the_value_of_such_an_option_is_never_left(
    before: list[str], option: str, joined: bool, after: list[str]
) -> None:
    value = "key=hunter2-geheim"
    words = [*before, *([f"{option}={value}"] if joined else [option, value]), *after]
    line = shlex.join(words)
    assert may_hold_secret(line)
    assert "hunter2" not in without_secrets(line, words)
