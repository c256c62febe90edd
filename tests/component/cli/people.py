"""People at their machines: each has a home of its own, runs commands, and answers what a terminal asks."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import pty
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from stand_in_controller import PROGRAM
from warm_commands import WarmCommands

from corral.testing.cluster import LocalController

PASSWORD = "mossy kettle under nine bridges"
OTHER = "nineteen lamps and a wet umbrella"
DEADLINE = 60.0

Reader = Callable[[str], str]
"""What somebody answers who reads the screen."""
Done = subprocess.CompletedProcess[str]


class Person:
    """Somebody with a command line; `env` is all that it has of Corral."""

    commands: ClassVar[WarmCommands]
    """Of this process; the tests' `conftest` sets it."""

    def __init__(self, home: pathlib.Path, **env: str) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CORRAL_", "XDG_"))}
        self._env = {**kept, "HOME": str(home), "PYTHONWARNINGS": "error", **env}

    @property
    def contexts(self) -> pathlib.Path:
        return self.home / ".config" / "corral" / "contexts.json"

    @property
    def token(self) -> str:
        """What is remembered of the context in use."""
        kept = json.loads(self.contexts.read_text())
        return str(kept["contexts"][kept["current"]]["token"])

    def file(self, name: str, text: str) -> str:
        path = self.home / name
        path.write_text(text)
        return str(path)

    async def run(self, *arguments: str, input: str | None = None) -> Done:
        """Without a terminal, to the end."""
        return await asyncio.to_thread(
            self.commands.run, arguments, env=self._env, input=input, timeout=DEADLINE
        )

    async def json(self, *arguments: str) -> Any:
        done = await self.run(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    async def talk(self, *arguments: str, answers: Sequence[tuple[str, str | Reader]]) -> tuple[int, str]:
        """On a terminal: type each answer once its question has appeared. Exit code and all that was seen."""
        return await asyncio.to_thread(self._talk, arguments, answers)

    def _talk(self, arguments: Sequence[str], answers: Sequence[tuple[str, str | Reader]]) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env={**self._env, "NO_COLOR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        screen = _Screen(ours)
        try:
            for question, answer in answers:
                screen.wait_for(question)
                text = answer if isinstance(answer, str) else answer(screen.seen)
                os.write(ours, f"{text}\n".encode())
            screen.wait_for(None)
            return process.wait(timeout=DEADLINE), screen.seen
        finally:
            process.kill()
            process.wait()
            os.close(ours)


class _Screen:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._raw = b""
        self._read = 0
        self._deadline = time.monotonic() + DEADLINE

    @property
    def seen(self) -> str:
        return self._raw.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, question: str | None) -> None:
        """Until it is there, behind the one before; None: until the command ends."""
        while question is None or question not in self.seen[self._read :]:
            left = self._deadline - time.monotonic()
            assert select.select([self._fd], [], [], max(0.0, left))[0], f"no {question!r} in:\n{self.seen}"
            try:
                self._raw += os.read(self._fd, 65_536)
            except OSError:  # the other end is closed: it has ended
                assert question is None, f"it ended without {question!r}:\n{self.seen}"
                return
        self._read = self.seen.index(question, self._read) + len(question)


async def make_user(api: LocalController, name: str = "ada", *, role: str = "OPERATOR", **more: Any) -> None:
    """A user who may log in at once, unless the test says otherwise."""
    body = {"name": name, "bindings": [{"role": role}], "password": PASSWORD, "must_change_password": False}
    await api.call("POST", "/api/v1/users", {**body, **more})


def administrator(api: LocalController, home: pathlib.Path) -> Person:
    """Whoever has the first token."""
    return Person(home, CORRAL_URL=api.url, CORRAL_TOKEN=api.admin_token)


async def logged_in(api: LocalController, home: pathlib.Path, name: str = "ada") -> Person:
    """Somebody who has logged in by password."""
    person = Person(home)
    file = person.file("password", f"{PASSWORD}\n")
    done = await person.run("login", api.url, "--user", name, "--password-file", file, "--name", "here")
    assert done.returncode == 0, done.stderr
    return person
