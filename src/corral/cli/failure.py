"""How a command fails: what a person reads, and the code a script reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

import click

_LONGEST_REQUEST: Final = 128


class CommandFailure(click.ClickException):
    """`error: message`, then `hint: …` when there is something to do; never a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        del file
        report(self.message, hint=self.hint)


class CommandRefused(CommandFailure):
    """The controller, or the command itself, refused."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str = "",
        status: int = 0,
        field: str = "",
        request: str = "",
        retry_after: int = 0,
        details: Sequence[Mapping[str, Any]] = (),
        digest: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.details = details
        """The refused documents, where several were sent."""
        self.errors: tuple[str, ...] = ()
        """A line for each of them."""
        self.groups: list[str] = []
        """The groups that they are about."""
        self.code = code
        self.status = status
        self.field = field
        self.request = request
        """The id of the refused request, for 'corral logs --request ID'."""
        self.digest = digest
        """Of the file that is there, when it is not the expected one."""
        self.retry_after = retry_after
        """After so many seconds it may be granted; 0: the answer does not say."""

    def show(self, file: IO[Any] | None = None) -> None:
        for line in self.errors:
            note(line)
        super().show(file)
        if self.request:
            note(f"request: {self.request[:_LONGEST_REQUEST]}")


class BadConfiguration(CommandRefused):
    """The settings of a role are refused: another start would end the same way. Its unit is not restarted then."""

    exit_code = 78  # EX_CONFIG of sysexits.h


class WrongUsage(CommandFailure):
    """The command line itself cannot be followed."""

    exit_code = 2


class Unreachable(CommandFailure):
    """No answer, or not one of a controller. `passing`: time may mend it; `in_doubt`: what was asked for may have been
    done."""

    exit_code = 3

    def __init__(
        self, message: str, *, hint: str | None = None, passing: bool = False, in_doubt: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing
        self.in_doubt = in_doubt


class WaitRanOut(CommandFailure):
    """The awaited state did not come in time; it may still."""

    exit_code = 4


def report(message: str, *, hint: str | None = None) -> None:
    """Print an error for people, on stderr."""
    click.echo(f"error: {printable(message)}", err=True)
    if hint:
        click.echo(f"hint: {printable(hint)}", err=True)


def note(message: str) -> None:
    """Something worth knowing that is neither the result nor a failure."""
    click.echo(printable(message), err=True)


def printable(text: str) -> str:
    """The text without characters that would steer the terminal: much of it comes from elsewhere."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text
    )
