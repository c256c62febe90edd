"""What members of a provider's groups may do, as text."""

from __future__ import annotations

import pytest

from corral.domain.accounts.oidc_bindings import bindings_of, read_group_table
from corral.domain.bindings import Binding, Scope


def test_a_group_gets_a_role_everywhere_or_in_a_scope() -> None:
    table = read_group_table(
        {"admins": "ADMIN", "Lobby Team": " VIEWER ;OPERATOR groups=lobby,lobby-* nodes=eu-*"}
    )
    assert table["admins"] == (Binding(role="ADMIN"),)
    assert table["Lobby Team"] == (
        Binding(role="VIEWER"),
        Binding(role="OPERATOR", scope=Scope(groups=("lobby", "lobby-*"), nodes=("eu-*",))),
    )


def test_somebody_has_the_bindings_of_all_groups_each_once() -> None:
    table = read_group_table({"a": "VIEWER", "b": "OPERATOR groups=x", "c": "VIEWER"})
    assert bindings_of(["c", "b", "unknown"], table) == (*table["b"], *table["c"])
    assert bindings_of(["a", "c"], table) == table["a"]


@pytest.mark.parametrize("groups", [[], ["A"], ["a "], ["*"], [""]])
def test_whoever_is_in_no_group_of_the_table_has_nothing(groups: list[str]) -> None:
    assert bindings_of(groups, read_group_table({"a": "ADMIN"})) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no role"),
        (";", "no role"),
        ("ADMIN;", "no role"),
        ("ADMIN everywhere", "'everywhere' is not understood"),
        ("ADMIN group=a", "'group=a' is not understood"),
        ("ADMIN groups=", "'groups=' is not understood"),
        ("ADMIN groups=a groups=b", "is not understood"),
        ("ADMIN groups=a,,b", "length >= 1"),
        ("ADMIN groups=[a]", "matching regex"),
        ("AD/MIN", "there can be no role"),
        ("; ".join(["VIEWER"] * 51), "more than 50"),
        ("VIEWER groups=" + "a" * 20_000, "longer than"),
    ],
)
def test_a_text_that_would_mean_more_or_less_than_it_says_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="'team'") as refused:
        read_group_table({"team": text})
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["", " a", "a" * 257, "a\u202eb", "a\n"])
def test_a_group_that_no_provider_can_send_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="character"):
        read_group_table({name: "ADMIN"})


def test_a_table_is_bounded() -> None:
    with pytest.raises(ValueError, match="1001 groups"):
        read_group_table({f"g{number}": "VIEWER" for number in range(1001)})
