"""Groups of commands: the root, which imports a command when it is called, and the nouns, with synonyms of verbs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import click

Table = Mapping[str, tuple[str, str]]
"""Command name → (`module:attribute`, one line of help)."""
_SYNONYMS: Final = (("get", "info", "show"), ("delete", "remove"))


class LazyGroup(click.Group):
    """The root. `--help` prints the table and imports nothing."""

    def __init__(
        self, *args: Any, table: Table, aliases: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        cmd_name = self._aliases.get(cmd_name, cmd_name)
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as unknown:  # click looks for near names among loaded commands only
            raise click.NoSuchCommand(unknown.command_name, possibilities=self._table, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


class Noun(click.Group):
    """Verbs of one noun. `get`, `info` and `show` find the one of them that the noun has, `delete` and `remove`
    likewise; `ls` is `list`. A shell completes arguments that name something the controller knows."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        from corral.cli.completion import offer_names  # not for the root

        offer_names(str(self.name), cmd)
        super().add_command(cmd, name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        for words in _SYNONYMS:
            if cmd_name in words:
                return next((self.commands[name] for name in words if name in self.commands), None)
        return self.commands.get("list") if cmd_name == "ls" else None
