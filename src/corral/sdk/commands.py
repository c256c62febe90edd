"""Commands that a module adds to the console of the control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from corral.sdk.errors import BadRegistration
from corral.sdk.http_messages import Caller
from corral.sdk.protocol.messages import CommandAnswer, CommandDeclaration, CommandRequest, Parameter
from corral.sdk.runner_port import Invoke

MAX_COMMANDS: Final = 50
_MAX_LINES: Final = 10_000


class CommandParameter(msgspec.Struct, frozen=True):
    """One word that a command takes.

    ```python
    CommandParameter("player", help="whom to look up")
    ```
    """

    name: str
    required: bool = True
    help: str = ""


class CommandCall(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it was typed.

    ```python
    async def show(self, call: CommandCall) -> list[str]:
        return [f"{call.named['player']}: 3 rounds"]
    ```
    """

    arguments: tuple[str, ...]
    """All words after the command's name."""
    named: dict[str, str]
    """The words by the names of the parameters."""
    caller: Caller


CommandHandler: TypeAlias = Callable[[CommandCall], object]
"""`def` or `async def`; returns a text, lines, or None."""


class Commands:
    """Given to `register_commands`.

    ```python
    def register_commands(self, commands):
        commands.add("stats show", self.show, help="Rounds of a player",
                     parameters=[CommandParameter("player")])
    ```
    """

    def __init__(self) -> None:
        self._commands: list[tuple[CommandDeclaration, CommandHandler]] = []

    def add(
        self,
        name: str,
        handler: CommandHandler,
        *,
        help: str = "",
        parameters: Sequence[CommandParameter] = (),
        permission: str = "modules.use",
    ) -> None:
        """Raises BadRegistration for a name that is empty or there already."""
        words = name.split()
        if not words or not name.isprintable() or len(name) > 100:
            raise BadRegistration(f"command {name!r}: a name is one or more words")
        tidy = " ".join(words)
        if any(known.name == tidy for known, _ in self._commands):
            raise BadRegistration(f"command '{tidy}' is registered twice")
        if len(self._commands) >= MAX_COMMANDS:
            raise BadRegistration(f"command '{tidy}': a module has at most {MAX_COMMANDS} commands")
        if not callable(handler):
            raise BadRegistration(f"command '{tidy}': the handler cannot be called")
        declaration = CommandDeclaration(
            number=len(self._commands) + 1,
            name=tidy,
            help=help,
            parameters=tuple(Parameter(name=p.name, required=p.required, help=p.help) for p in parameters),
            permission=permission,
        )
        self._commands.append((declaration, handler))

    def _declarations(self) -> tuple[CommandDeclaration, ...]:
        return tuple(declaration for declaration, _ in self._commands)

    async def _answer(self, body: CommandRequest, invoke: Invoke) -> CommandAnswer:
        if not 1 <= body.command <= len(self._commands):
            raise LookupError(f"command {body.command} is not registered")
        declaration, handler = self._commands[body.command - 1]
        missing = [p.name for p in declaration.parameters[len(body.arguments) :] if p.required]
        if missing:
            usage = " ".join(f"<{p.name}>" if p.required else f"[{p.name}]" for p in declaration.parameters)
            return CommandAnswer(lines=(f"{missing[0]} is missing: {declaration.name} {usage}",))
        names = (p.name for p in declaration.parameters)
        caller = Caller(name=body.caller.name, role=body.caller.role, address=body.caller.address)
        call = CommandCall(
            arguments=body.arguments, named=dict(zip(names, body.arguments, strict=False)), caller=caller
        )
        return CommandAnswer(lines=_lines(await invoke(f"command {declaration.name}", handler, call)))


def _lines(result: object) -> tuple[str, ...]:
    if result is None:
        return ()
    if isinstance(result, str):
        return tuple(result.splitlines()[:_MAX_LINES])
    if isinstance(result, Iterable):
        return tuple(str(line) for line, _ in zip(result, range(_MAX_LINES), strict=False))
    raise TypeError(f"a command returns a text, lines or None, not {type(result).__name__}")
