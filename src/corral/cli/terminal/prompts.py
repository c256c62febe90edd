"""Questions for text: names, codes, passwords. A password is asked for or read from a file, and is on no command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from corral.cli.failure import CommandRefused, WrongUsage, note, report
from corral.cli.token_options import secret_in

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def password_file_option(command: F) -> F:
    """Give a command `password_file`."""
    return click.option(
        "--password-file", metavar="FILE", help="File with the password; - for standard input."
    )(command)


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def can_edit_lines() -> bool:
    """Whether the terminal is one on which a line can be edited while it is typed."""
    capable = os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return capable and is_terminal() and sys.stdout.isatty()


def ask(what: str, *, instead: str, hidden: bool = False, default: str | None = None) -> str:
    """A text that is not empty. Without a terminal it is wrong usage; `instead` tells what a script does."""
    if not is_terminal():
        raise WrongUsage(f"{what} is missing, and there is no terminal to ask on", hint=instead)
    typed: str = click.prompt(what, hide_input=hidden, err=True, default=default)
    return typed


def password(path: str | None, *, what: str = "password", option: str = "--password-file") -> str:
    """A password that is in use: out of its file, or asked for."""
    if path is not None:
        return secret_in(path, what)
    return ask(_title(what), instead=f"use {option}", hidden=True)


def new_password(path: str | None, *, option: str = "--password-file") -> str:
    """A password that somebody wants to have: out of its file, or asked for twice."""
    if path is not None:
        return secret_in(path, "password")
    while True:
        first = ask("New password", instead=f"use {option}", hidden=True)
        if ask("The same again", instead=f"use {option}", hidden=True) == first:
            return first
        note("these were two different passwords")


def send_new_password(path: str | None, send: Callable[[str], T], *, field: str = "password") -> T:
    """Send a request with a new password. Whoever typed one that is refused is asked for another."""
    while True:
        try:
            return send(new_password(path))
        except CommandRefused as refusal:
            if path is not None or refusal.field != field:
                raise
            report(refusal.message, hint=refusal.hint)


def _title(what: str) -> str:
    return what[:1].upper() + what[1:]
