"""The program by which a controller runs commands of the command line for callers of its API."""

from __future__ import annotations

import sys
from typing import Final

from corral.cli.main import ALIASES, NOUNS
from corral.controller.commands.command_process import CommandProgram

PROGRAM: Final = CommandProgram(
    argv=(sys.executable, "-I", "-B", "-m", "corral.cli.executed"),
    words=frozenset({*NOUNS, *ALIASES, "help"}),
)
"""Isolated: neither the environment nor the working directory decide what is imported."""
