"""The question before what cannot be taken back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from corral.cli.failure import CommandRefused, WrongUsage, note, printable

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def yes_option(command: F) -> F:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def act_confirmed(
    question: str, act: Callable[[dict[str, str]], T], name: str, *, yes: bool, ask: bool = True
) -> T:
    """Do what may give up instances or worlds: ask first (unless not `ask`), and again when the controller names some.
    With --yes they are only printed. `act` gets the parameters of the request."""
    if ask:
        confirm(question, yes=yes)
    try:
        return act({})
    except CommandRefused as refusal:
        if refusal.code != "CONFIRMATION_REQUIRED":
            raise
        if yes:
            note(refusal.message)
        elif not sys.stdin.isatty():
            refusal.hint = "nothing was done; add --yes if that is meant"
            raise
        elif not click.confirm(f"{printable(refusal.message)}\n{question} all the same", err=True):
            raise click.Abort from None
    return act({"confirm": name})


def confirm(question: str, *, yes: bool) -> None:
    """Go on, ask, or refuse: a script that cannot be asked has to use --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUsage(f"a yes is needed to {question}", hint="add --yes; there is no terminal to ask on")
    if not click.confirm(question, err=True):
        raise click.Abort
