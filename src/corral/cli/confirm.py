"""The question before what cannot be taken back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from corral.cli.failure import WrongUsage

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Go on, ask, or refuse: a script that cannot be asked has to say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUsage(f"{question} needs a yes", hint="add --yes; there is no terminal to ask on")
    if not click.confirm(question, err=True):
        raise click.Abort
