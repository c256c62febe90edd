"""Where a module's process is put besides its own limits: a control group, where a host has them."""

from __future__ import annotations

from typing import Protocol

from corral.modules.process.process_values import Limits, Sample


class Confinement(Protocol):
    """`name` is unique among the processes that live; `enter` comes first and `leave` last."""

    async def enter(self, name: str, pid: int, limits: Limits) -> None:
        """Before any of the module's code runs, so all that it starts is inside. A failure means that the
        process is not used."""

    async def kill(self, name: str) -> None:
        """All inside at once. Idempotent; a failure costs nothing, the process tree is killed anyway."""

    def usage(self, name: str) -> Sample | None:
        """What all inside use; None: not known, look at the process tree. Does not block."""

    async def leave(self, name: str) -> None:
        """Nothing is inside any more. Idempotent."""


class NoConfinement:
    """There are no control groups: limits of the process and the watch on its tree have to do."""

    async def enter(self, name: str, pid: int, limits: Limits) -> None:
        pass

    async def kill(self, name: str) -> None:
        pass

    def usage(self, name: str) -> Sample | None:  # noqa: ARG002 - as the port has it
        return None

    async def leave(self, name: str) -> None:
        pass
