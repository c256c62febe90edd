"""The bindings that members of a group get which an OpenID Connect provider names, as text in the configuration:
`ADMIN`, `OPERATOR groups=lobby-*,game nodes=eu-*`, several divided by `;`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corral.domain.accounts.records import valid_role_name
from corral.domain.bindings import MOST_BINDINGS, Binding
from corral.domain.control_characters import refuse_control
from corral.domain.permissions import Role
from corral.errors import CorralError, nearest

MOST_GROUPS: Final = 1000
GROUP_MAX: Final = 256
_TEXT_MAX: Final = 16 * 1024
_FORM: Final = "write ROLE, or ROLE groups=PATTERN,PATTERN nodes=PATTERN, and divide several by ;"

GroupTable = Mapping[str, tuple[Binding, ...]]
"""Bindings by the name of the provider's group."""


def read_group_table(texts: Mapping[str, str]) -> GroupTable:
    """ValueError names the group and what is wrong with its text."""
    if len(texts) > MOST_GROUPS:
        raise ValueError(f"it has {len(texts)} groups, up to {MOST_GROUPS} are allowed")
    return {check_group(group): _bindings(group, text) for group, text in texts.items()}


def check_group(name: str) -> str:
    """A group's name as a provider may send it; ValueError for one that can never match."""
    if not name or len(name) > GROUP_MAX or name != name.strip():
        raise ValueError(f"a group has 1 to {GROUP_MAX} characters, without space around them")
    try:
        refuse_control(name, "group")
    except CorralError as refused:
        raise ValueError(str(refused)) from None
    return name


def bindings_of(groups: Iterable[str], table: GroupTable) -> tuple[Binding, ...]:
    """The bindings of these groups, each once, in the order of the table, at most as many as a user can have; none: nothing
    is allowed."""
    member = frozenset(groups)
    found = (binding for group, bindings in table.items() if group in member for binding in bindings)
    return tuple(itertools.islice(dict.fromkeys(found), MOST_BINDINGS))


def _bindings(group: str, text: str) -> tuple[Binding, ...]:
    if len(text) > _TEXT_MAX:
        raise ValueError(f"{group!r}: its text is longer than {_TEXT_MAX} characters")
    parts = [part.split() for part in text.split(";")]
    if not all(parts) or len(parts) > MOST_BINDINGS:
        raise ValueError(f"{group!r}: it has no role, or more than {MOST_BINDINGS}; {_FORM}")
    return tuple(_binding(group, *words) for words in parts)


def _binding(group: str, role: str, *words: str) -> Binding:
    scope: dict[str, tuple[str, ...]] = {}
    for word in words:
        key, _, patterns = word.partition("=")
        if key not in ("groups", "nodes") or key in scope or not patterns:
            raise ValueError(f"{group!r}: {word[:40]!r} is not understood; {_FORM}")
        scope[key] = tuple(patterns.split(","))
    _check_role(group, role)
    try:
        return msgspec.convert({"role": role, "scope": scope}, Binding)
    except msgspec.ValidationError as error:
        raise ValueError(f"{group!r}: {error}; {_FORM}") from None


def _check_role(group: str, role: str) -> None:
    """Refuse a role that nobody can create; one that is not there yet is fine."""
    if role in Role.__members__:
        return
    try:
        valid_role_name(role)
    except CorralError:
        guess = nearest(role.upper(), Role.__members__)
        meant = f"is {guess} meant?" if guess else f"the fixed ones are {', '.join(Role.__members__)}"
        raise ValueError(f"{group!r}: there can be no role {role[:40]!r}; {meant}") from None
