"""What every module's life needs of its host, in one value; made once, by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from corral.domain.module_manifest import Manifest, ModuleHost
from corral.modules.capabilities.capability_registry import CapabilityRegistry
from corral.modules.lifecycle.loader import ModuleLoader
from corral.modules.package_store import PackageStore
from corral.modules.scope import Scope
from corral.modules.services.command_table import CommandTable
from corral.modules.services.route_table import RouteTable
from corral.system.clock import Clock
from corral.system.config_sections import ModuleHostSection


class GenerationKeeper(Protocol):
    """Keeps the collections of modules, by generation."""

    async def copy(self, module: str, source: int, target: int) -> None:
        """Make `target` as `source` is; it is empty before. Retryable when the store does not answer."""

    async def drop(self, module: str, generation: int) -> None:
        """Take a generation away, if it is there."""


class RestartBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long the engine waits before it tries again."""

    restarts: tuple[float, ...] = (1.0, 2.0, 4.0)
    """After the first, second, third death of a process; then as the last."""
    retry: float = 1.0
    """After the store did not take a step."""


class EngineDeps(msgspec.Struct, frozen=True, kw_only=True):
    host: ModuleHost
    book: PackageStore
    loader: ModuleLoader
    capabilities: CapabilityRegistry
    routes: RouteTable
    commands: CommandTable
    data: GenerationKeeper | None
    config: ModuleHostSection
    clock: Clock
    pace: RestartBackoff
    upgrade_guard: Callable[[], AbstractAsyncContextManager[None]]
    later: Callable[[Coroutine[Any, Any, object], str], asyncio.Task[object]]
    """Have something done beside; who does not wait for it leaves that to the engine's end."""
    on_serving: Callable[[Scope], None]

    def hosts(self, manifest: Manifest) -> bool:
        """Whether the module has a class for this host."""
        return manifest.backend_on(self.host) is not None
