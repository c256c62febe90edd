"""`corral console`: all commands in one shell."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from corral.cli.api.session import opened_session
from corral.cli.failure import note
from corral.cli.token_options import token_options

if TYPE_CHECKING:
    from corral.cli.console.known_names import KnownNames
    from corral.cli.console.shell import Shell

PROMPT: Final = "corral> "
_COMPLETION_SECONDS: Final = 2.0


@click.command()
@click.option("--url", metavar="URL", help="Controller to talk to.")
@token_options
@click.option("--context", metavar="NAME", help="Remembered controller to use.")
def console(url: str | None, token: str | None, token_file: str | None, context: str | None) -> int:
    """All commands in one shell. One connection, a history, completion with Tab; Ctrl-D leaves.

    Without a terminal the lines come from standard input, and the exit code is that of the last line that failed.
    """
    from corral.cli.console.known_names import KnownNames
    from corral.cli.console.shell import Shell, greeting, lines_of_input

    with opened_session(
        url=url, token=token, token_file=token_file, context=context, output="table"
    ) as session:
        names = KnownNames(session.client.copy(timeout=_COMPLETION_SECONDS))
        shell = Shell(session.client, names)
        try:
            if not sys.stdin.isatty():
                shell.run(lines_of_input)
                return shell.failed
            note(greeting(session.client))
            _interactive(shell, names)
            return 0
        finally:
            names.close()


def _interactive(shell: Shell, names: KnownNames) -> None:
    from corral.cli.console.completion import Completer
    from corral.cli.console.history import History, history_path
    from corral.cli.console.shell import BUILT_IN

    history = History(history_path(os.environ))
    history.load()
    Completer(names, built_in=BUILT_IN).install()

    def read() -> str | None:
        try:
            line = input(PROMPT)
        except EOFError:
            click.echo()
            return None
        history.add(line)
        return line

    shell.run(read)
    history.save()
