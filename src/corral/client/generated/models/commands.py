"""Structures of `commands`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct


class CommandPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Command, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Command(Struct, frozen=True, kw_only=True):
    """Command."""

    name: str
    """The words of the command."""
    module: str
    """Id of the module."""
    help: str
    """What it does."""
    permission: str
    """Permission that it needs."""
    usage: str
    """How it is typed."""
    parameters: tuple[Parameter, ...]
    """Its parameters, in order."""


class Parameter(Struct, frozen=True, kw_only=True):
    """Parameter."""

    name: str
    """Name of the parameter."""
    required: bool
    """Whether it must be given."""
    help: str
    """What it is."""
