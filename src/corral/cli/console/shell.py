"""The loop of the console: reads a line, runs it as a command of the tree, goes on whatever becomes of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from corral.cli.command_groups import LazyGroup
from corral.cli.console.known_names import KnownNames
from corral.cli.console.words import HELP, with_help, words_of
from corral.cli.failure import CommandFailure, WrongUsage, note, printable, report
from corral.cli.main import cli, invoke, show_failure

if TYPE_CHECKING:
    from corral.cli.api.client import Client

LEAVE: Final = frozenset({"exit", "quit"})
STOP: Final = "stop"
BUILT_IN: Final = (HELP, "exit", "quit", STOP)
NOT_HERE: Final = frozenset({"console", "controller", "daemon", "up"})
"""Commands that would take over the terminal for good."""
INTERRUPTED: Final = 130
_LONGEST_LINE: Final = 64 * 1024

ReadLine = Callable[[], str | None]
"""The next line; None: there is none. KeyboardInterrupt drops what was typed."""


class Shell:
    """Runs lines on one connection. `failed` is the exit code of the last line that failed."""

    def __init__(self, client: Client, names: KnownNames) -> None:
        self._client = client
        self._names = names
        self.failed = 0

    def run(self, read: ReadLine) -> None:
        """Until the lines end, or one of them is `exit`."""
        while True:
            try:
                line = read()
                if line is None or not self.execute(line):
                    return
            except KeyboardInterrupt:
                note("")

    def execute(self, line: str) -> bool:
        """Run one line; False: it was the last one."""
        try:
            words = words_of(line)
            if words and words[0] in LEAVE and len(words) == 1:
                return False
            code = self._executed(words) if words else 0
            if code == 0 and words and words[0] == STOP and not _asks_for_help(words):
                return False  # there is nothing to talk to any more
        except KeyboardInterrupt:
            code = INTERRUPTED
        except SystemExit as end:  # nobody reads what is printed any more
            self.failed = end.code if isinstance(end.code, int) else 1
            return False
        except (click.ClickException, click.Abort, OSError) as error:
            code = show_failure(error)
        except Exception as error:
            report(
                f"the command failed: {type(error).__name__}: {error}", hint="this is a bug: please report it"
            )
            code = 1
        if code:
            self.failed = code
        if code == INTERRUPTED:
            self._client.close()  # an answer may be on its way that nobody waits for
        return True

    def _executed(self, words: list[str]) -> int:
        words = with_help(words)
        if words == ["--help"]:
            invoke(words)
            click.echo(_ABOUT)
            return 0
        if words[0] == STOP:
            words = ["cluster", "shutdown", *words[1:]]
        if words[0] in NOT_HERE and not _asks_for_help(words):
            raise WrongUsage(
                f"'{words[0]}' is not for the console", hint=f"run it in a shell: corral {words[0]}"
            )
        self._names.forget()  # what is completed next may have been changed by this
        if _is_unknown(words[0]) and self._is_of_module(words):
            words = ["command", "run", "--", *words]
        return invoke(words, obj={"client": self._client})

    def _is_of_module(self, words: list[str]) -> bool:
        typed = " ".join(words) + " "
        return any(typed.startswith(f"{name} ") for name in self._names.commands())


_ABOUT: Final = """
In the console 'help COMMAND' explains one, Tab completes, 'exit' or Ctrl-D leaves, Ctrl-C ends a command and not the
console. 'stop' ends the controller, and instances go on. Commands of modules are typed by their own words."""


def _asks_for_help(words: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(words)


def _is_unknown(word: str) -> bool:
    assert isinstance(cli, LazyGroup)
    return not word.startswith("-") and not cli.has(word)


def lines_of_input() -> str | None:
    """The next line of a pipe or a file."""
    line = sys.stdin.readline(_LONGEST_LINE)
    if len(line) == _LONGEST_LINE:
        raise CommandFailure(f"a line has more than {_LONGEST_LINE} characters", hint="split it")
    return line.rstrip("\n") if line else None


def greeting(client: Client) -> str:
    """Where this is, and as whom; a controller that does not answer may do so later."""
    try:
        who = client.get("/api/v1/auth/me")
    except CommandFailure as failure:
        failure.show()
        return f"{client.url} does not answer yet; 'help' lists the commands, 'exit' leaves"
    name = who.get("user") or (who.get("token") or {}).get("name") or ""
    return printable(f"{client.url} as {name or 'somebody'}; 'help' lists the commands, 'exit' leaves")
