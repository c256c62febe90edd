"""`corral console`: all commands in one shell."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Final

import click

from corral.cli.api.session import opened_session
from corral.cli.failure import note
from corral.cli.token_options import token_options

if TYPE_CHECKING:
    from corral.cli.console.known_names import KnownNames
    from corral.cli.console.shell import ReadLine

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
            shell.run(_typed_lines(names))
            return 0
        finally:
            names.close()


def _typed_lines(names: KnownNames) -> ReadLine:
    """What reads a line from the terminal, with editing where that has a cursor to move."""
    from corral.cli.console.history import History, history_path
    from corral.cli.terminal.prompts import can_edit_lines

    history = History(history_path(os.environ))

    if not can_edit_lines():

        def read_plainly() -> str | None:
            try:
                line = input(PROMPT)
            except EOFError:
                click.echo()
                return None
            history.append_string(line)
            return line

        return read_plainly

    from corral.cli.console.completion import NameCompleter
    from corral.cli.console.shell import BUILT_IN
    from corral.cli.terminal.line_prompt import LinePrompt

    prompt = LinePrompt(PROMPT, history=history, completer=NameCompleter(names, built_in=BUILT_IN))

    pasted: deque[str] = deque()

    def read_edited() -> str | None:
        if pasted:
            line = pasted.popleft()
            click.echo(f"{PROMPT}{line}")
            return line
        try:
            first, *more = prompt.read().splitlines() or [""]
            pasted.extend(more)
            return first
        except KeyboardInterrupt:
            return ""  # the prompt has left the line already
        except EOFError:
            return None

    return read_edited
