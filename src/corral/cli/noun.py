"""Nouns: groups of verbs in which the usual words for "show me one" are one verb."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.completion import offer_names

_SAME: Final = (("get", "info", "show"), ("delete", "remove"))


class Noun(click.Group):
    """`get`, `info` and `show` find whichever of them the noun has, `delete` and `remove` likewise; `ls` is
    `list`. Arguments that name something known to the controller can be completed."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        offer_names(str(self.name), cmd)
        super().add_command(cmd, name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        for words in _SAME:
            if cmd_name in words:
                return next((self.commands[name] for name in words if name in self.commands), None)
        return self.commands.get("list") if cmd_name == "ls" else None
