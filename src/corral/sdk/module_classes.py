"""The classes that modules derive from. Every hook is optional, and may be `def` or `async def`."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Final

from corral.sdk.capabilities import CapabilityBinding
from corral.sdk.commands import Commands
from corral.sdk.context import ModuleContext
from corral.sdk.health import Health
from corral.sdk.instances import ExitInfo, InstanceHandle, InstanceSpec
from corral.sdk.routes import Routes

LIFECYCLE_HOOKS: Final = ("on_load", "on_upgrade", "on_start", "on_stop", "on_unload", "on_reload")
INSTANCE_HOOKS: Final = (
    "on_instance_starting",
    "on_instance_started",
    "on_instance_stopping",
    "on_instance_stopped",
)
ALL_HOOKS: Final = (
    *LIFECYCLE_HOOKS,
    *INSTANCE_HOOKS,
    "register_routes",
    "register_commands",
    "capability_handles",
    "health_check",
)


class _Module:
    """Base of both kinds. An instance is made without arguments, once per process."""

    def on_load(self, ctx: ModuleContext) -> Awaitable[None] | None:
        """The first hook, once for each process; required capabilities may still be missing. `on_unload` is
        its counterpart."""

    def on_upgrade(self, ctx: ModuleContext) -> Awaitable[None] | None:
        """Before `on_start`, when another version wrote the present data: `ctx.previous_version`, which may
        be a later one after a downgrade. Not called when other bytes of the same version are installed, as
        under `corral module dev`. Works on a copy of the module's documents and keys, which is dropped when
        the upgrade fails; then it is called again for the next attempt, on the documents as they were."""

    def on_start(self, ctx: ModuleContext) -> Awaitable[None] | None:
        """Every required capability is available. Subscribe and schedule here."""

    def on_stop(self, ctx: ModuleContext) -> Awaitable[None] | None:
        """The module receives no calls after this, until it is started again: in this process when a required
        capability was lost and is back, in a new one after it was deactivated or paused."""

    def on_unload(self, ctx: ModuleContext) -> Awaitable[None] | None:
        """The last call before the process ends: on deactivation, pause, uninstall, upgrade and the end of
        the host. End your threads and child processes; those that are left are killed."""

    def on_reload(self, ctx: ModuleContext) -> Awaitable[None] | None:
        """`ctx.config` is new. Raise to keep the old settings."""

    def register_commands(self, commands: Commands) -> None:
        """Add console commands; on the controller only, like routes."""

    def capability_handles(self) -> Iterable[CapabilityBinding[Any]]:
        """The capabilities of the manifest's `provides`, all of them."""
        return ()

    def health_check(self) -> Awaitable[Health | bool | None] | Health | bool | None:
        """Called by the host every 30 s (`modules.health_check_seconds`) and by `corral module health`; None
        means healthy. Answer within the hook's deadline: three times late in a row, and the module is
        FAILED."""
        return None


class PlatformModule(_Module):
    """A module that runs on the controller.

    ```python
    class Stats(PlatformModule):
        async def on_start(self, ctx: ModuleContext) -> None:
            self.rounds = ctx.require_document_storage().collection("rounds", Round)
            await ctx.events.subscribe("round-keeper/ROUND_OVER", self.count)

        def register_routes(self, routes: Routes) -> None:
            routes.get("/rounds", self.list_rounds)
    ```
    """

    def register_routes(self, routes: Routes) -> None:
        """Add routes below `/api/v1/modules/ID`."""


class DaemonModule(_Module):
    """A module that runs on every node.

    ```python
    class GcLog(DaemonModule):
        async def on_instance_starting(self, spec: InstanceSpec) -> None:
            spec.jvm_args.append("-Xlog:gc*")
    ```
    """

    def on_instance_starting(self, spec: InstanceSpec) -> Awaitable[None] | None:
        """May change `jvm_args`, `args` and `env`."""

    def on_instance_started(self, handle: InstanceHandle) -> Awaitable[None] | None:
        """The instance has a process."""

    def on_instance_stopping(self, handle: InstanceHandle) -> Awaitable[None] | None:
        """The instance is being stopped."""

    def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> Awaitable[None] | None:
        """The instance has ended, by itself or not."""
