"""Dependencies of the engine's parts on their host, in one value, made once by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from corral.domain.modules.manifest import Manifest, ModuleHost
from corral.modules.capabilities.capability_registry import CapabilityRegistry
from corral.modules.lifecycle.loader import ModuleLoader
from corral.modules.lifecycle.restart_backoff import RestartBackoff
from corral.modules.package_store import PackageStore
from corral.modules.scope import Scope
from corral.modules.services.command_table import CommandTable
from corral.modules.services.route_table import RouteTable
from corral.system.clock import Clock
from corral.system.config_sections import ModuleHostSection


class GenerationKeeper(Protocol):
    """Port to the stored collections of modules, by generation."""

    async def copy(self, module: str, source: int, target: int) -> None:
        """Copy `source` to `target`, which is empty before. Retryable when the store does not answer."""

    async def drop(self, module: str, generation: int) -> None:
        """Remove a generation, if it is there."""


class EngineDeps(msgspec.Struct, frozen=True, kw_only=True):
    host: ModuleHost
    store: PackageStore
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
    """Start a background task; one that the caller does not await is awaited when the engine closes."""
    on_serving: Callable[[Scope], None]

    def hosts(self, manifest: Manifest) -> bool:
        """Does the module have a class for this host?"""
        return manifest.backend_on(self.host) is not None
