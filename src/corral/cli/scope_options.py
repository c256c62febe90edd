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
        "--role", multiple=True, metavar="ROLE", help="ADMIN, OPERATOR, VIEWER or an own one."
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
    """Bindings of these roles, each within the scope."""
    scope = given_scope(group, node)
    if scope and not role:
        raise WrongUsage("--group and --node say where a role holds: name one with --role")
    return [{"role": each, **({"scope": scope} if scope else {})} for each in role]


def shown_scope(scope: dict[str, Any]) -> str:
    """A scope for people; empty: everywhere."""
    parts = [f"{noun} {' '.join(scope[noun])}" for noun in ("groups", "nodes") if scope.get(noun) is not None]
    return "; ".join(parts)


def shown_binding(binding: dict[str, Any]) -> str:
    where = shown_scope(binding.get("scope") or {})
    return f"{binding.get('role')} ({where})" if where else str(binding.get("role"))


def shown_bindings(user: Mapping[str, Any]) -> str:
    """The roles that administrators gave a user, for people."""
    return ", ".join(shown_binding(each) for each in user.get("bindings", ())) or "-"
