"""A node with a runtime of windows on it, for tests; everything of it is gone afterwards."""

from __future__ import annotations

import os
import pathlib
import subprocess
from types import TracebackType
from typing import Any, Final, Self

import pytest

from corral.runtimes.cgroups.port import CgroupFacts
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.sessions.multiplexer import Multiplexer, base_environment
from corral.runtimes.sessions.provider import SessionRuntime
from corral.runtimes.sessions.screen import SOCKETS, Screen
from corral.runtimes.sessions.tmux import SOCKET, Tmux
from corral.sdk.runtime import RunSpec
from corral.testing.process_house import ProcessHouse

MULTIPLEXERS: Final = ("tmux", "screen")


def multiplexer_called(name: str) -> Multiplexer:
    return Tmux() if name == "tmux" else Screen()


class SessionHouse:
    """Use as `async with`. Skips its test where the multiplexer is not installed."""

    def __init__(
        self, data: pathlib.Path, *, multiplexer: str, cgroups: str = "none", segment_bytes: int = 64 << 20
    ) -> None:
        self.data = data
        self.multiplexer = multiplexer
        self._segment_bytes = segment_bytes
        self._node = ProcessHouse(data, cgroups=cgroups, segment_bytes=segment_bytes)
        self._facts: CgroupFacts | None = None
        self._providers: list[SessionRuntime] = []

    @property
    def provider(self) -> SessionRuntime:
        return self._providers[-1]

    async def next_provider(self) -> SessionRuntime:
        process = ProcessRuntime(
            self.data, self._node.cgroups(), self._segment_bytes, facts=self._facts, name=self.multiplexer
        )
        provider = SessionRuntime(process, multiplexer_called(self.multiplexer))
        self._providers.append(provider)
        await provider.open()
        self._facts = process.facts
        return provider

    def spec(self, *command: str, **fields: Any) -> RunSpec:
        return self._node.spec(*command, **fields)

    @property
    def keeper_directory(self) -> pathlib.Path:
        """Where sessions live, too."""
        return self.data / "keeper"

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The multiplexer's own program, as an operator would call it. Blocking."""
        own = ("tmux", "-S", SOCKET) if self.multiplexer == "tmux" else ("screen",)
        return subprocess.run(
            (*own, *arguments),
            cwd=self.keeper_directory,
            env=self.operator_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def operator_environment(self) -> dict[str, str]:
        more = {} if self.multiplexer == "tmux" else {"SCREENDIR": SOCKETS}
        return {**base_environment(), "PATH": os.environ["PATH"], **more}

    def sessions(self) -> set[str]:
        """The names of those that exist, with `screen` without the pid in front."""
        if self.multiplexer == "tmux":
            return set(self.call("list-sessions", "-F", "#{session_name}").stdout.split())
        sockets = self.keeper_directory / SOCKETS
        return {socket.name.partition(".")[2] for socket in sockets.iterdir()} if sockets.exists() else set()

    async def __aenter__(self) -> Self:
        if not multiplexer_called(self.multiplexer).program:
            pytest.skip(f"{self.multiplexer} is not installed")
        await self._node.__aenter__()
        await self.next_provider()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for provider in self._providers:
            await provider.close()
        await self._node.__aexit__(kind, error, trace)
