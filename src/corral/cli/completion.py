"""`corral completion`, and the names that a shell offers for the arguments of commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from corral.cli.api.client import Client
    from corral.cli.console.known_names import KnownNames

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_CORRAL_COMPLETE"

_TIMEOUT_SECONDS: Final = 2.0
_MOST: Final = 500
_LISTS: Final = {
    "instance": ("/api/v1/instances", "id"),
    "group": ("/api/v1/groups", "name"),
    "node": ("/api/v1/nodes", "id"),
    "template": ("/api/v1/templates", "name"),
    "module": ("/api/v1/modules", "id"),
    "deployment": ("/api/v1/deployments", "id"),
    "crash": ("/api/v1/crashes", "id"),
    "token": ("/api/v1/tokens", "id"),
    "user": ("/api/v1/users", "name"),
    "role": ("/api/v1/roles", "name"),
}
_SEARCHED: Final = ("/api/v1/instances", "/api/v1/groups", "/api/v1/nodes")
"""Lists that have compact items, and find what has a text in its name."""
_WHOLE: Final = ("/api/v1/roles",)
"""Lists that are one page, and take no limit."""
_OWN_ARGUMENT: Final = ("id", "name")
"""The nouns above call their own argument so; any other argument is called like its noun."""


class KnownName(click.ParamType[str]):
    """Text for which the shell offers the names that the controller knows."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._path, self._key = _LISTS[kind]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(click.STRING.convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Nothing when the controller does not answer at once: a shell must not hang or print an error."""
        del param
        from click.shell_completion import CompletionItem

        kept: KnownNames | None = (ctx.find_root().obj or {}).get("names")
        if kept is not None:
            found = kept.of(self._path, self._ask, self._key)
        else:
            found = self._asked_once(ctx, incomplete)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    def _ask(self, client: Client, text: str = "") -> list[Any]:
        """The items of the list; of a long one those with this text, where it can be searched."""
        from corral.cli.api.client import SUMMARY

        if self._path in _WHOLE:
            items: list[Any] = client.get(self._path)["items"]
            return items
        if self._path in _SEARCHED:
            return client.pages(self._path, {**SUMMARY, **({"q": text} if text else {})}, limit=_MOST)
        return client.pages(self._path, limit=_MOST)

    def _asked_once(self, ctx: click.Context, incomplete: str) -> list[str]:
        from corral.cli.api.session import connect
        from corral.cli.failure import CommandFailure

        given = {**ctx.find_root().params, **{key: value for key, value in ctx.params.items() if value}}
        try:
            client = connect(
                url=given.get("url"),
                token=None,
                context=given.get("context"),
                environment=os.environ,
                timeout=_TIMEOUT_SECONDS,
            )
            try:
                return [str(item.get(self._key, "")) for item in self._ask(client, incomplete)]
            finally:
                client.close()
        except CommandFailure:
            return []


def offer_names(noun: str, command: click.Command) -> None:
    """Complete the arguments of a noun's command that name something, but for `create` and `new`: they take a name
    that does not exist yet."""
    if command.name in ("create", "new"):
        return
    for parameter in command.params:
        if not isinstance(parameter, click.Argument) or parameter.type is not click.STRING:
            continue
        kind = noun if parameter.name in _OWN_ARGUMENT else str(parameter.name)
        if kind in _LISTS:
            parameter.type = KnownName(kind)


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and names.

    For bash: 'corral completion bash > ~/.local/share/bash-completion/completions/corral'.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    script = found(root, {}, "corral", VARIABLE)
    click.echo(script.source_template % script.source_vars())
