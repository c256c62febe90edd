"""Command table: the console commands of all modules that serve; a name has one owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from corral.errors import Code, Rejected, unknown_choice
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import CommandDeclaration


class CommandMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The command that a command line names. Call the module through `scope`."""

    declaration: CommandDeclaration
    arguments: tuple[str, ...]
    scope: Scope


class CommandTable:
    """Finds commands; only the engine calls `put` and `drop`."""

    def __init__(self) -> None:
        self._commands: dict[str, tuple[Scope, CommandDeclaration]] = {}

    def put(self, scope: Scope, commands: Sequence[CommandDeclaration]) -> Callable[[], None]:
        for command in commands:
            self._commands[" ".join(command.name.split())] = scope, command
        return lambda: self.drop(scope)

    def drop(self, scope: Scope) -> None:
        self._commands = {name: kept for name, kept in self._commands.items() if kept[0] is not scope}

    def taken(self, *, besides: str) -> set[str]:
        """Names that belong to other modules."""
        return {name for name, (scope, _) in self._commands.items() if scope.module_id != besides}

    def all(self) -> list[tuple[str, CommandDeclaration]]:
        """Module id and command, by name."""
        return [(scope.module_id, command) for _, (scope, command) in self._by_name()]

    def _by_name(self) -> list[tuple[str, tuple[Scope, CommandDeclaration]]]:
        return sorted(self._commands.items(), key=lambda pair: pair[0])

    def find(self, words: Sequence[str]) -> CommandMatch:
        """The command with the longest name that the words begin with; the remaining words are its
        arguments."""
        for size in range(len(words), 0, -1):
            found = self._commands.get(" ".join(words[:size]))
            if found is not None:
                scope, command = found
                return _matched(scope, command, tuple(words[size:]))
        raise unknown_choice("command", " ".join(words)[:200], self._commands, code=Code.NOT_FOUND)


def _matched(scope: Scope, command: CommandDeclaration, arguments: tuple[str, ...]) -> CommandMatch:
    needed = sum(1 for parameter in command.parameters if parameter.required)
    if len(arguments) < needed or (not command.parameters and arguments):
        usage = " ".join(
            f"<{parameter.name}>" if parameter.required else f"[{parameter.name}]"
            for parameter in command.parameters
        )
        raise Rejected(
            Code.BAD_REQUEST,
            f"'{command.name}' takes other arguments",
            hint=f"usage: {command.name} {usage}".rstrip(),
        )
    return CommandMatch(declaration=command, arguments=arguments, scope=scope)
