"""Which commands a controller runs for callers of its API: those that only talk to the API and end by themselves.

Everything else is refused, and an option that names a file of the machine, another controller or an endless wait is refused
with any command. A test compares both tables with the whole tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from corral.cli.command_groups import LazyGroup
from corral.cli.failure import CommandRefused

ALLOWED: Final[Mapping[str, str]] = {
    "audit": "list",
    "capability": "list",
    "catalog": "add list remove show",
    "cluster": "nodes raise-epoch repair-sequence settings status",
    "command": "list",
    "crash": "get list",
    "deploy": "",
    "deployment": "cancel get list pause promote resume rollback why",
    "event": "list types",
    "export": "",
    "group": (
        "delete get hold list maintenance registry release reload resolved restart revisions scale start unpause"
    ),
    "instance": (
        "cat command commands create delete files get kill list logs mkdir mv plan restart rm runs save search start stop "
        "unpack"
    ),
    "logs": "controller daemon level request",
    "module": (
        "activate config deactivate force-cleanup health info leaked list pause recover reload resume storage/drop uninstall"
    ),
    "node": (
        "cache cap command cordon drain info join-token join-token-revoke join-tokens label list modules prewarm "
        "remove revoke shutdown uncordon undrain"
    ),
    "role": "create delete get list update",
    "session": "end list",
    "template": "cat delete diff files list rm rollback set show sync versions",
    "token": "create list revoke",
    "user": "create delete get list lock reset-delay unlock update",
    "version": "",
    "whoami": "",
    "why": "",
}
"""Noun and verbs; a command of its own has no verbs."""

_FILES: Final = "it works with files of the machine that it is run on"
_HERE: Final = "it is about the machine that it is run on"
_TERMINAL: Final = "it needs a terminal"
_ENDLESS: Final = "it does not end by itself"
_OTHER: Final = "it is sent to this controller, and as who you are"
REFUSED: Final[Mapping[str, str]] = {
    "apply": _FILES,
    "audit export": _FILES,
    "audit verify": _FILES,
    "cluster admin-certificate": _FILES,
    "cluster shutdown": "it ends the controller that would run it: POST /api/v1/cluster/shutdown does that",
    "command run": "a command runs no other: give the words of that command themselves",
    "completion": _HERE,
    "console": _TERMINAL,
    "context add": _HERE,
    "context list": _HERE,
    "context remove": _HERE,
    "context show": _HERE,
    "context use": _HERE,
    "controller": _HERE,
    "controller admin-token": _HERE,
    "daemon": _HERE,
    "delete": _FILES,
    "diff": _FILES,
    "doctor controller": _HERE,
    "doctor group": _FILES,
    "doctor node": _HERE,
    "down": _HERE,
    "event follow": _ENDLESS,
    "group create": _FILES,
    "group update": _FILES,
    "import universe": _FILES,
    "instance console": _TERMINAL,
    "instance download": _FILES,
    "instance edit": _TERMINAL,
    "instance pull": _FILES,
    "instance push": _FILES,
    "instance put": _FILES,
    "local command": _HERE,
    "local kill": _HERE,
    "local list": _HERE,
    "local restart": _HERE,
    "local stop": _HERE,
    "local stop-all": _HERE,
    "login": _HERE,
    "logout": _HERE,
    "module build": _FILES,
    "module dev": _FILES,
    "module doctor": _FILES,
    "module install": _FILES,
    "module new": _FILES,
    "module sign": _FILES,
    "module test": _FILES,
    "module upgrade": _FILES,
    "simulate record": _ENDLESS,
    "simulate run": _FILES,
    "template edit": _TERMINAL,
    "template export": _FILES,
    "template import": _FILES,
    "template put": _FILES,
    "template upload": _FILES,
    "up": _HERE,
    "user password": _TERMINAL,
    "user totp enable": _TERMINAL,
    "user totp recovery-codes": _TERMINAL,
    "user totp remove": _TERMINAL,
}
"""The rest of the tree, and why."""

_NAMED: Final = {
    "url": _OTHER,
    "token": _OTHER,
    "token_file": _OTHER,
    "context": _OTHER,
    "store": _HERE,
    "ask_password": _TERMINAL,
    "watch": _ENDLESS,
    "follow": _ENDLESS,
}
_PATH: Final = re.compile(r"(?<![A-Z])(FILE|DIR|DIRECTORY|ARCHIVE)(?![A-Z])")
_OF_INSTANCES: Final = frozenset({"instance files", "instance unpack"})
"""Commands whose directories are those of an instance."""


def may_be_run(path: Sequence[str]) -> bool:
    """Whether the command at this path of the tree may be run."""
    if not path or path[0] not in ALLOWED:
        return False
    return "/".join(path[1:]) in (ALLOWED[path[0]].split() or [""])


def refused_parameter(path: Sequence[str], parameter: click.Parameter) -> str | None:
    """Why a parameter is refused with any value; None: it is not."""
    if isinstance(parameter, click.Option) and parameter.name in _NAMED:
        return _NAMED[str(parameter.name)]
    if isinstance(parameter.type, click.Path | click.File):
        return _FILES
    named = parameter.metavar and _PATH.search(parameter.metavar) and " ".join(path) not in _OF_INSTANCES
    return _FILES if named else None


def check(root: LazyGroup, words: Sequence[str]) -> None:
    """Refuse what may not be run, before any of it is: LOCAL_COMMAND. Nothing is called and nothing is converted by this;
    words that the tree does not know raise as they do when it is run."""
    command: click.Command = root
    path: list[str] = []
    rest = list(words)
    ctx: click.Context | None = None
    while True:
        name = path[-1] if path else "corral"
        ctx = click.Context(command, parent=ctx, info_name=name, **command.context_settings)
        given, rest, _ = command.make_parser(ctx).parse_args(args=rest)
        _refuse_parameters(path, command, given)
        helping = command.get_help_option(ctx)
        if helping is not None and helping.name in given:
            return  # it prints its help, before anything else
        if not isinstance(command, click.Group) or (not rest and command.invoke_without_command):
            break
        if not rest:
            return  # it prints its help
        typed, found, rest = command.resolve_command(ctx, rest)
        assert found is not None
        assert typed is not None
        path.append(root.canonical(typed) if command is root else _name_in(command, found) or typed)
        command = found
    if not may_be_run(path):
        raise _refusal(" ".join(path), REFUSED.get(" ".join(path), _HERE))


def _name_in(group: click.Group, found: click.Command) -> str | None:
    return next((name for name, each in group.commands.items() if each is found), None)


def _refuse_parameters(path: Sequence[str], command: click.Command, given: Mapping[str, Any]) -> None:
    for parameter in command.params:
        if not _has_value(given.get(str(parameter.name))):
            continue
        why = refused_parameter(path, parameter)
        if why is not None:
            name = (
                parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.human_readable_name
            )
            raise _refusal(f"{' '.join(path)} {name}".strip(), why)


def _has_value(value: Any) -> bool:
    """Arguments that are missing have a value of click's own."""
    return isinstance(value, str | int) or (isinstance(value, tuple | list) and bool(value))


def _refusal(what: str, why: str) -> CommandRefused:
    return CommandRefused(
        f"'{what}' is not run here: {why}",
        hint=f"run it where you are: corral {what}",
        code="LOCAL_COMMAND",
    )
