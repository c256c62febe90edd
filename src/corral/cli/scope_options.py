"""Options that say where a role or a token holds: groups and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from corral.cli.failure import WrongUsage

R = TypeVar("R")


def scope_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add --group and --node."""
    for option in (
        click.option("--node", multiple=True, metavar="PATTERN", help="Only on these nodes; several times."),
        click.option("--group", multiple=True, metavar="PATTERN", help="Only these groups; several times."),
    ):
        command = option(command)
    return command


def binding_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add --role, and --group and --node, which hold for all roles that are given."""
    role = click.option(
        "--role",
        multiple=True,
        metavar="ROLE",
        help="ADMIN, OPERATOR, VIEWER or an own one; several times. With places of its own: "
        "'OPERATOR groups=lobby-*,game nodes=eu-*'.",
    )
    return role(scope_options(command))


def given_scope(group: tuple[str, ...], node: tuple[str, ...]) -> dict[str, list[str]]:
    """The scope in the words of the API; empty: everywhere."""
    scope: dict[str, list[str]] = {}
    if group:
        scope["groups"] = list(group)
    if node:
        scope["nodes"] = list(node)
    return scope


def given_bindings(
    role: tuple[str, ...], group: tuple[str, ...], node: tuple[str, ...]
) -> list[dict[str, object]]:
    """Bindings of these roles, each within the scope, or within the places that its text names."""
    scope = given_scope(group, node)
    if scope and not role:
        raise WrongUsage("--group and --node say where a role holds: name one with --role")
    if not any(letter in each for each in role for letter in " \t;"):
        return [{"role": each, **({"scope": scope} if scope else {})} for each in role]
    if scope:
        raise WrongUsage(
            "--group and --node hold for all roles, and one of them names places of its own",
            hint="write the places of each into its --role: --role 'OPERATOR groups=lobby* nodes=eu-*' --role VIEWER",
        )
    return [binding for each in role for binding in _with_places(each)]


def _with_places(text: str) -> list[dict[str, object]]:
    """The bindings that a text means, in the form of `oidc.bindings`."""
    import msgspec

    from corral.domain.accounts.oidc_bindings import read_group_table

    try:
        found = read_group_table({"--role": text})["--role"]
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    return [
        {
            "role": each.role,
            **({} if each.scope.is_everything else {"scope": _stated(msgspec.to_builtins(each.scope))}),
        }
        for each in found
    ]


def _stated(scope: dict[str, list[str] | None]) -> dict[str, list[str]]:
    return {noun: patterns for noun, patterns in scope.items() if patterns is not None}


def shown_scope(scope: dict[str, Any]) -> str:
    """A scope for people; empty: everywhere."""
    parts = [f"{noun} {' '.join(scope[noun])}" for noun in ("groups", "nodes") if scope.get(noun) is not None]
    return "; ".join(parts)


def shown_binding(binding: dict[str, Any]) -> str:
    where = shown_scope(binding.get("scope") or {})
    return f"{binding.get('role')} ({where})" if where else str(binding.get("role"))


def shown_roles(user: Mapping[str, Any]) -> str:
    """All roles of a user, for people; those that its provider gives are marked."""
    given = [f"{shown_binding(each)} [provider]" for each in user.get("provider_bindings") or ()]
    return ", ".join([*(shown_binding(each) for each in user.get("bindings") or ()), *given]) or "-"


def shown_bindings(user: Mapping[str, Any]) -> str:
    """The roles that administrators gave a user, for people."""
    return ", ".join(shown_binding(each) for each in user.get("bindings", ())) or "-"
