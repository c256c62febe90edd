"""Whose standard input is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from corral.cli.failure import WrongUsage


def refuse_lines_of_console() -> None:
    """Before a command reads content from standard input: in `corral console` on a pipe, it has the lines that come next."""
    inside: Mapping[str, Any] = click.get_current_context().obj or {}
    if inside.get("client") is not None and not sys.stdin.isatty():
        raise WrongUsage(
            "standard input has the lines of the console, and no content for this command",
            hint="nothing was done; name a file",
        )
