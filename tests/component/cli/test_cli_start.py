"""What starting costs: the imports, not the time, which the benchmark P17 measures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "asyncio",
    "asyncpg",
    "cryptography",
    "grpc",
    "msgspec",
    "prometheus_client",
    "prompt_toolkit",
    "rich",
    "starlette",
    "structlog",
    "uvicorn",
    "yaml",
}
PROBE = "import sys, json; from corral.cli.main import run; run({!r}); print(json.dumps(sorted(sys.modules)), file=sys.stderr)"


def modules_after(arguments: list[str], env: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(arguments)], env=env, capture_output=True, text=True, timeout=60
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_imports_nothing_but_click(pointed: dict[str, str]) -> None:
    loaded = modules_after(["--help"], pointed)
    assert not loaded & (HEAVY | {"http.client", "ssl"})
    ours = {name.removeprefix("corral.cli.") for name in loaded if name.startswith("corral")}
    assert ours == {
        "corral",
        "corral.cli",
        "corral.version",
        "main",
        "command_groups",
        "early_signals",
        "failure",
        "token_options",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["node", "list"],
        ["node", "info", "web-1", "-o", "json"],
        ["group", "list"],
        ["instance", "list"],
        ["instance", "logs", "lobby-1"],
        ["context", "list"],
        ["user", "list"],
        ["session", "list"],
        ["whoami"],
        ["login", "http://127.0.0.1:1", "--user", "ada", "--password-file", "/dev/null"],
        ["logout"],
    ],
)
def test_an_everyday_command_imports_nothing_heavy(pointed: dict[str, str], arguments: list[str]) -> None:
    assert not modules_after(arguments, pointed) & HEAVY


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["node", "--help"], ["up", "--help"], ["daemon", "--help"]]
)
def test_help_is_there_for_everything(pointed: dict[str, str], arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corral.cli", *arguments],
        env=pointed,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Usage: corral" in done.stdout + done.stderr
    assert done.returncode == (0 if arguments else 2)


def test_every_command_of_the_tree_can_be_loaded_and_explains_itself() -> None:
    import click

    from corral.cli.main import NOUNS, cli

    context = click.Context(cli, info_name="corral")
    for name, (_, short) in NOUNS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert short.endswith(".")
        for verb in getattr(command, "commands", {}).values():
            assert verb.help, f"{name} {verb.name}"


def test_completion_knows_the_nouns_and_verbs(pointed: dict[str, str]) -> None:
    env = {**pointed, "_CORRAL_COMPLETE": "bash_complete", "COMP_WORDS": "corral node cor", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "corral.cli"], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "plain,cordon\n"


def test_no_line_of_help_is_cut_at_eighty_columns() -> None:
    import click

    from corral.cli.main import cli

    def groups(command: click.Command, path: str) -> list[tuple[str, click.Group]]:
        if not isinstance(command, click.Group):
            return []
        context = click.Context(command, info_name=path)
        inner = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        below = [found for name, each in inner if each for found in groups(each, f"{path} {name}")]
        return [(path, command), *below]

    cut = [
        f"{path}: {line.strip()}"
        for path, group in groups(cli, "corral")
        for line in group.get_help(click.Context(group, info_name=path, terminal_width=80)).splitlines()
        if line.endswith("...") and not line.startswith("Usage:")
    ]
    assert cut == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("app", "later"),
    [
        ("corral.controller.app", {"rich", "pygments"}),
        ("corral.daemon.app", {"rich", "pygments", "jsonschema_rs", "tomlkit"}),
    ],
)
def test_a_role_does_not_load_what_it_may_never_use(app: str, later: set[str]) -> None:
    probe = (
        "import importlib, json, sys; from corral.cli.roles import import_structlog_alone;"
        f"import_structlog_alone(); importlib.import_module({app!r}); print(json.dumps(sorted(sys.modules)));"
        "import rich"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not set(json.loads(done.stdout)) & later
