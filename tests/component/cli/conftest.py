"""The command line as people run it: a process of its own, with a home of its own."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from people import Person
from stand_in_controller import NODE, PROGRAM, StandIn
from warm_commands import WarmCommands

TOKEN = "corral_test_0123456789abcdef"

Corral = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def server() -> Iterator[StandIn]:
    stand_in = StandIn()
    stand_in.answers["GET", "/api/v1/nodes"] = (200, {"items": [NODE], "next": None})
    stand_in.answers["GET", "/api/v1/nodes/web-1"] = (200, NODE)
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="session")
def without_ours() -> dict[str, str]:
    """An environment without anything of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CORRAL_", "XDG_"))}
    return {**kept, "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="session")
def warm_commands(without_ours: dict[str, str]) -> Iterator[WarmCommands]:
    commands = WarmCommands(without_ours)
    yield commands
    commands.close()


@pytest.fixture(scope="session", autouse=True)
def warm_people(warm_commands: WarmCommands) -> None:
    Person.commands = warm_commands


@pytest.fixture
def home(tmp_path: pathlib.Path, without_ours: dict[str, str]) -> dict[str, str]:
    """That environment, with a home of its own."""
    return {**without_ours, "HOME": str(tmp_path / "home")}


@pytest.fixture
def pointed(home: dict[str, str], server: StandIn) -> dict[str, str]:
    """An environment that points at the server."""
    return {**home, "CORRAL_URL": server.url, "CORRAL_TOKEN": TOKEN}


def _ended_in_traceback(stderr: str) -> bool:
    """Warnings of what is collected late are errors here, and are told without ending a command."""
    lines = ["", *stderr.splitlines()]
    return any(
        line.startswith("Traceback (most recent") and not before.startswith("Exception ignored in")
        for before, line in itertools.pairwise(lines)
    )


@pytest.fixture
def corral(pointed: dict[str, str], warm_commands: WarmCommands) -> Corral:
    """Run a command to its end, which is never a traceback; `env=None` values take variables away."""

    def run(*arguments: str, input: str | None = None, **env: Any) -> subprocess.CompletedProcess[str]:
        merged = {name: value for name, value in {**pointed, **env}.items() if value is not None}
        done = warm_commands.run(arguments, env=merged, input=input, timeout=60)
        assert not _ended_in_traceback(done.stderr), done.stderr
        return done

    return run


@pytest.fixture
def begin(pointed: dict[str, str]) -> Iterator[Begin]:
    """Start a command that does not end by itself."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [*PROGRAM, *arguments],
                env=pointed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate(timeout=20)
