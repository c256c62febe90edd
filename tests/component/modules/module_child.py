"""A module's process without the zygote: the runner in a bare interpreter, and our end of its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import textwrap

import msgspec

import corral.sdk
from corral.sdk.protocol import messages as m
from corral.sdk.runner.connection import Connection

START = """
import os, socket, sys
sys.path.append(sys.argv[2])
sys.dont_write_bytecode = True
from corral.sdk.runner import child
child.run(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:])
"""
DEADLINE = 20.0


class ModuleChild:
    """`answers` maps the module's calls to what they are answered with; every call is in `asked`."""

    def __init__(self, directory: pathlib.Path, source: str, *, memory_mb: int = 0) -> None:
        self.directory = directory
        self.source = textwrap.dedent(source)
        self.memory_mb = memory_mb
        self.answers: dict[str, object] = {}
        self.asked: list[tuple[str, dict]] = []
        self.notices: list[tuple[str, dict]] = []

    async def __aenter__(self) -> ModuleChild:
        view, archive = self.directory / "view", self.directory / "archive"
        (view / "corral").mkdir(parents=True)
        (view / "corral" / "sdk").symlink_to(pathlib.Path(corral.sdk.__file__).parent)
        (view / "msgspec").symlink_to(pathlib.Path(msgspec.__file__).parent)
        archive.mkdir()
        (archive / "subject.py").write_text(self.source)
        ours, theirs = socket.socketpair()
        self.socket = ours
        with theirs:
            self.process = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-I", "-S", "-c", START, str(theirs.fileno()), str(view), str(archive)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        if self.memory_mb:  # it waits for its first message
            limit = self.memory_mb << 20
            resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (limit, limit))
        self.link = Connection(
            ours, serve=self._serve, on_notice=self._on_notice, most_calls=1000, limited=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.wait()

    async def _serve(self, method: str, raw: msgspec.Raw) -> object:
        self.asked.append((method, msgspec.msgpack.decode(raw)))
        answer = self.answers.get(method, m.Nothing())
        if isinstance(answer, BaseException):
            raise answer
        return await answer(raw) if callable(answer) else answer

    def _on_notice(self, method: str, raw: msgspec.Raw) -> None:
        self.notices.append((method, msgspec.msgpack.decode(raw)))

    @property
    def log(self) -> list[str]:
        return [body["message"] for method, body in self.notices if method == m.LOG]

    async def call(self, method: str, body: object, answer: type, *, deadline: float = DEADLINE):
        return await self.link.call(method, body, answer, deadline=deadline)

    async def construct(self, *, host: str = "controller", manifest: dict | None = None, **more: object):
        written = {"id": "subject", "version": "1.0.0", **(manifest or {})}
        body = m.Construct(
            module_id="subject",
            version="1.0.0",
            host=host,
            entrypoint="subject:Subject",
            artifact_path=str(self.directory / "archive"),
            manifest=msgspec.Raw(msgspec.msgpack.encode(written)),
            **more,
        )
        return await self.call(m.CONSTRUCT, body, m.Constructed)

    async def hook(self, name: str, *, deadline: float = DEADLINE, **values: object):
        arguments = m.HookArguments(values=values)
        return (await self.call(m.HOOK_PREFIX + name, arguments, m.HookAnswer, deadline=deadline)).value

    async def started(self, **more: object) -> m.Registrations:
        await self.construct(**more)
        await self.hook("on_load")
        await self.hook("on_start")
        return await self.call(m.REGISTRATIONS, m.Nothing(), m.Registrations)

    async def finish(self) -> m.Lingering:
        return await self.call(m.FINISH, m.Nothing(), m.Lingering)

    async def wait(self) -> int:
        """The exit code, negative for a signal."""
        async with asyncio.timeout(DEADLINE):
            return await asyncio.to_thread(self.process.wait, DEADLINE)


CALLER = m.CallerBody(name="ada", role="ADMIN")


def request(route: int, method: str = "GET", path: str = "/", **more: object) -> m.RouteRequest:
    return m.RouteRequest(route=route, method=method, path=path, caller=CALLER, **more)
