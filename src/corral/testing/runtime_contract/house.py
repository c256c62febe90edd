"""The node of the contract's tests, and how they inspect what runs there."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Final, Protocol

import pytest

from corral.errors import CorralError
from corral.sdk.runtime import AdoptionKind, RunHandle, RunSpec, RuntimeProvider
from corral.testing.waiting import eventually

C_LIBRARY_SIGNALS: Final = 1 << 31 | 1 << 32
"""Signals 32 and 33 are the C library's own: its posix_spawn leaves them ignored in what it starts, no
program can set them, and each one that needs them installs its own handler."""


class RuntimeHarness(Protocol):
    """A node to run things on."""

    provider: RuntimeProvider
    """The present one."""

    async def next_provider(self) -> RuntimeProvider:
        """The provider that a new daemon would make; `provider` from now on."""

    def spec(self, *command: str, **fields: Any) -> RunSpec:
        """A run of its own, its directories made; `fields` are those of `RunSpec`."""


def console_bytes(run_directory: str) -> bytes:
    """All bytes of a run's console, of which none were dropped."""
    segments = sorted(pathlib.Path(run_directory, "console").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


async def console_match(handle: RunHandle, pattern: bytes) -> re.Match[bytes]:
    """The first match in the console, once there is one."""

    def found() -> re.Match[bytes] | None:
        return re.search(pattern, console_bytes(handle.run_directory))

    match = await eventually(found, state=lambda: console_bytes(handle.run_directory)[-2000:])
    assert match is not None
    return match


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X")


async def refused(house: RuntimeHarness, *command: str, **fields: Any) -> CorralError:
    """How a start is refused; nothing of the run is there afterwards."""
    spec = house.spec(*command, **fields)
    with pytest.raises(CorralError) as caught:
        await house.provider.start(spec)
    adoption = await house.provider.adopt(spec.run_directory)
    assert adoption.kind is AdoptionKind.NEVER_STARTED
    return caught.value
