"""Options for the API token, and secrets in files. A file is preferred: a command line is visible on the host and stays in
the shell's history."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import WrongUsage, note

F = TypeVar("F", bound=Callable[..., Any])

_MOST: Final = 4096


def token_options(command: F) -> F:
    """Give a command `token_file`, and `token` for those who must."""
    command = click.option(
        "--token", metavar="TOKEN", help="API token; others on this host can see it there: use --token-file."
    )(command)
    return click.option(
        "--token-file", metavar="FILE", help="File with the API token; - for standard input."
    )(command)


def given_token(token: str | None, token_file: str | None) -> str | None:
    """The token of either option; None when neither was given."""
    if token_file is None:
        return token or None
    if token:
        raise WrongUsage("--token and --token-file exclude each other", hint="leave --token out")
    return secret_in(token_file, "API token").strip()


def warn_of_command_line(token: str | None) -> None:
    if token:
        note(
            "others on this host can see a token on a command line: use --token-file, or let yourself be asked"
        )


def warn_of_recovery_code(code: str | None) -> None:
    """`-` is no code: it is asked for."""
    if code and code != "-":
        note(
            "others on this host can see a code on a command line: give --recovery-code without it, and you are asked"
        )


def secret_in(path: str, what: str) -> str:
    """The only line of a file; `-`: of standard input, where a person at a terminal is asked without showing it."""
    if path == "-" and sys.stdin.isatty():
        typed: str = click.prompt(what[:1].upper() + what[1:], hide_input=True, err=True)
        return typed
    text = _read(path).rstrip("\r\n")
    if not text.strip():
        raise WrongUsage(f"there is no {what} in {_named(path)}")
    if "\n" in text:
        raise WrongUsage(
            f"there is more than one line in {_named(path)}", hint=f"it has to hold the {what} alone"
        )
    return text


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read(_MOST)
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs every command its import
            return file.read(_MOST)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise WrongUsage(f"cannot read {_named(path)}: {why}") from None


def _named(path: str) -> str:
    return "standard input" if path == "-" else f"'{path}'"
