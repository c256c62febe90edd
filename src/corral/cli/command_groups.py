"""Groups of commands: the root, which imports a command when it is called, and the nouns, with synonyms of verbs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Table = Mapping[str, tuple[str, str]]
"""Command name → (`module:attribute`, one line of help)."""
_SYNONYMS: Final = (("get", "info", "show"), ("delete", "remove"))
_OF_UNIVERSE: Final[Mapping[str, Mapping[str, str]]] = {
    "instance": {"execute": "command", "exec": "command", "run": "command", "cmd": "command"},
    "node": {"resources": "info"},
    "token": {"delete": "revoke", "remove": "revoke"},
}
"""Verbs of Universe's console, by noun."""


class LazyGroup(click.Group):
    """The root. `--help` prints the table and imports nothing."""

    def __init__(
        self, *args: Any, table: Table, aliases: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self._aliases = aliases or {}

    def canonical(self, name: str) -> str:
        """The name in the table of what may be an alias."""
        return self._aliases.get(name, name)

    def has(self, name: str) -> bool:
        return self.canonical(name) in self._table

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self._table)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: click would import every command."""
        from click.shell_completion import CompletionItem

        own = [
            CompletionItem(name, help=text)
            for name, (_, text) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*own, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        cmd_name = self.canonical(cmd_name)
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
            known = [*self._table, *self._aliases]
            raise click.NoSuchCommand(unknown.command_name, possibilities=known, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


class Noun(click.Group):
    """Verbs of one noun. `get`, `info` and `show` find the one of them that the noun has, `delete` and `remove`
    likewise; `ls` is `list`; Universe's verbs are known, too. A shell completes arguments that name something the controller knows."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        from corral.cli.completion import offer_names  # not for the root

        offer_names(str(self.name), cmd)
        super().add_command(cmd, name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        other = _OF_UNIVERSE.get(str(self.name), {}).get(cmd_name)
        if other is not None:
            return self.commands.get(other)
        for words in _SYNONYMS:
            if cmd_name in words:
                return next((self.commands[name] for name in words if name in self.commands), None)
        return self.commands.get("list") if cmd_name == "ls" else None
