"""Which commands a controller runs for callers: the table and the whole tree are compared."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from corral.cli.executed.allowed import ALLOWED, REFUSED, check, may_be_run, refused_parameter
from corral.cli.failure import CommandRefused
from corral.cli.main import cli

WITHOUT_API = {"version"}
"""Commands that only print something they know."""
OF_THE_CLUSTER = {
    "instance mkdir PATH",
    "instance mv PATH",
    "instance rm PATH",
    "instance unpack PATH",
    "catalog add --from",
    "instance cat PATH",
    "instance files PATH",
    "instance save --path",
    "logs level SOURCE",
    "template cat PATH",
    "template rm PATH",
}
"""Paths within an instance or a template, an address that nodes fetch from, and a source of logs."""
SUSPICIOUS = ("file", "dir", "directory", "path", "paths", "source", "target", "archive", "out")


def leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from leaves(found, (*path, name))
        if not command.invoke_without_command:
            return
    yield path, command


TREE = dict(leaves(cli))


def test_every_command_of_the_tree_is_allowed_or_refused_with_a_reason() -> None:
    allowed = {path for path in TREE if may_be_run(path)}
    refused = {" ".join(path) for path in TREE if path not in allowed}
    assert refused == set(REFUSED), "a new command belongs into one of the tables of cli/executed/allowed.py"
    named = {(noun, *verb.split("/")) for noun, verbs in ALLOWED.items() for verb in verbs.split()}
    named |= {(noun,) for noun, verbs in ALLOWED.items() if not verbs}
    assert named == allowed, "what the table allows has to exist"


def test_an_allowed_command_only_talks_to_the_api_and_takes_no_path_of_the_host() -> None:
    for path, command in TREE.items():
        name = " ".join(path)
        if not may_be_run(path):
            continue
        names = {parameter.name for parameter in command.params}
        assert "url" in names or name in WITHOUT_API, f"{name} does something without the API"
        for parameter in command.params:
            shown = parameter.opts[-1] if isinstance(parameter, click.Option) else str(parameter.name).upper()
            if set(SUSPICIOUS).isdisjoint(str(parameter.name).split("_")):
                continue
            known = f"{name} {shown}" in OF_THE_CLUSTER
            assert (refused_parameter(path, parameter) is not None) != known, f"{name} {shown}"
        for endless in {"follow", "watch", "token_file"} & names:
            parameter = next(each for each in command.params if each.name == endless)
            assert refused_parameter(path, parameter) is not None


REFUSALS = [
    ("up", "up"),
    ("login", "login"),
    ("controller", "controller"),
    ("controller admin-token --data /x", "controller admin-token --data"),
    ("apply -f groups", "apply --file"),
    ("config create -fx", "group create --file"),
    ("catalog add a 1 --file=/etc/passwd", "catalog add --file"),
    ("template cat a b /tmp/c", "template cat [FILE]"),
    ("module config x --file /etc/shadow", "module config --file"),
    ("user create x --data /var", "user create --data"),
    ("user create x --password-file /etc/shadow", "user create --password-file"),
    ("instance list --token-file /etc/shadow", "instance list --token-file"),
    ("--url http://elsewhere instance list", "--url"),
    ("--token-file /etc/shadow whoami", "--token-file"),
    ("logs controller -f", "logs controller --follow"),
    ("instances ls -w", "instance list --watch"),
    ("event follow", "event follow"),
    ("instance console x", "instance console"),
    ("command run instance list", "command run"),
    ("key create x --context other", "token create --context"),
]


@pytest.mark.parametrize(("line", "named"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_what_belongs_to_the_machine_of_the_caller_is_refused_before_it_is_run(line: str, named: str) -> None:
    with pytest.raises(CommandRefused, match="is not run here") as refused:
        check(cli, line.split())
    assert refused.value.code == "LOCAL_COMMAND"
    assert f"'{named}'" in refused.value.message
    assert "corral" in str(refused.value.hint)


@pytest.mark.parametrize(
    "line",
    [
        "instance list -o json",
        "instances ls",
        "instance stop x --reason -f",
        "instance exec x -- say --file y",
        "config show lobby",
        "extension reload x",
        "key delete tok-1 -y",
        "template cat a b",
        "instance files x plugins",
        "module storage drop x",
        "help",
        "--help",
        "controller --help",
        "instance",
        "",
    ],
)
def test_commands_that_only_ask_the_api_pass(line: str) -> None:
    check(cli, [word for word in line.split() if word != "help"])
