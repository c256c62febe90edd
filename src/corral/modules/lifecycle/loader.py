"""Module loader: from an archive to a constructed module in its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from corral.domain.modules.manifest import Manifest, ModuleHost
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, CorralError, Retryable
from corral.modules.capabilities.capability_registry import CapabilityRegistry
from corral.modules.lifecycle.module_failure import (
    ModuleFailure,
    construct_failure,
    hook_failure,
    supply_failure,
)
from corral.modules.process.circuit_breaker import Breaker, CallCounts
from corral.modules.process.process_port import ModuleSpawner, RunningModule
from corral.modules.process.process_values import Limits, OverLimit, nice_of
from corral.modules.scope import Scope
from corral.modules.services.host_operations import NoticeHandler, OperationTable
from corral.sdk.protocol.frame_limits import shown
from corral.sdk.protocol.messages import (
    CONSTRUCT,
    HOOK_PREFIX,
    Construct,
    Constructed,
    HookAnswer,
    HookArguments,
)
from corral.system.clock import Clock
from corral.system.config_sections import ModuleHostSection

VENDOR: Final = "vendor"
_ERROR_LENGTH: Final = 500
_log = structlog.get_logger("corral.modules.lifecycle")


class ArchiveSupply(Protocol):
    """Source of the code of modules."""

    async def unpacked(self, sha256: str) -> Path:
        """The archive's content in a read-only directory; digest and, where configured, signature are
        verified each time. NOT_FOUND, DIGEST_MISMATCH, SIGNATURE_VERIFICATION_FAILED, or Retryable."""


class ModuleLoader:
    """Starts module processes. A failed start leaves no process and no registration behind."""

    def __init__(
        self,
        *,
        host: ModuleHost,
        spawner: ModuleSpawner,
        supply: ArchiveSupply,
        operations: OperationTable,
        notices: Mapping[str, NoticeHandler],
        capabilities: CapabilityRegistry,
        config: ModuleHostSection,
        clock: Clock,
        node_id: str = "",
    ) -> None:
        self._host = host
        self._spawner = spawner
        self._supply = supply
        self._operations = operations
        self._notices = notices
        self._capabilities = capabilities
        self._config = config
        self._clock = clock
        self._node_id = node_id

    async def load(
        self, record: PackageRecord, *, counts: CallCounts, breaker_opened: Callable[[Scope, str], None]
    ) -> Scope:
        """Start a process with the module's object in it, no hook called yet; raises `ModuleFailure`. A
        record with `upgraded_from` passes that version on to the module. Retryable when the archive is not
        available now."""
        try:
            root = await self._supply.unpacked(record.sha256)
            scope, process = await self._begin(record, root, counts, breaker_opened)
        except Retryable as error:
            if error.code is not Code.SPAWN_FAILED:
                raise  # the store, or the shutdown: not the module's fault
            raise supply_failure(error) from error
        except CorralError as error:
            raise supply_failure(error) from error
        try:
            made = await process.call(
                CONSTRUCT,
                self._construction(record, root),
                answer=Constructed,
                deadline=self._config.load_timeout_seconds,
            )
        except BaseException as error:
            failure = construct_failure(error) if isinstance(error, CorralError) else None
            if failure is not None:
                failure.sample = failure.sample or process.sample()
            await end_process(scope)
            raise failure or error from error
        scope.hooks = frozenset(made.hooks)
        return scope

    async def _begin(
        self,
        record: PackageRecord,
        root: Path,
        counts: CallCounts,
        breaker_opened: Callable[[Scope, str], None],
    ) -> tuple[Scope, RunningModule]:
        scope = Scope(
            module_id=record.id,
            version=record.version,
            manifest=record.manifest,
            host=self._host,
            generation=record.generation,
            config=record.settings,
            clock=self._clock,
            breaker=Breaker(lambda what: breaker_opened(scope, what)),
            counts=counts,
        )
        process = await self._spawner.start(
            record.id,
            paths=[root, root / VENDOR],
            limits=self._limits(record.manifest),
            serve=lambda method, body: self._operations.serve(scope, method, body),
            on_notice=lambda method, body: self._notice(scope, method, body),
        )
        scope.attach(process)
        return scope, process

    def _limits(self, manifest: Manifest) -> Limits:
        return Limits(
            memory_mb=manifest.limits.memory_mb or self._config.memory_mb,
            processes=manifest.limits.processes or self._config.max_processes,
            nice=nice_of(manifest.limits.cpu_weight),
            run_as=self._config.run_as,
        )

    def _construction(self, record: PackageRecord, root: Path) -> Construct:
        manifest = record.manifest
        backend = manifest.backend_on(self._host)
        stored = manifest.storage if self._host is ModuleHost.CONTROLLER else None
        storages = [
            name
            for name, present in (
                ("documents", stored and stored.documents),
                ("key_value", stored and stored.key_value),
            )
            if present
        ]
        return Construct(
            module_id=record.id,
            version=record.version,
            host=self._host.value,
            entrypoint=backend.entrypoint if backend else "",
            artifact_path=str(root),
            manifest=msgspec.Raw(msgspec.msgpack.encode(manifest)),
            config=record.settings,
            previous_version=record.upgraded_from,
            is_upgrade=bool(record.upgraded_from),
            storages=tuple(storages),
            capabilities=self._capabilities.states(manifest),
            node_id=self._node_id,
        )

    def _notice(self, scope: Scope, method: str, body: msgspec.Raw) -> None:
        """An invalid notice is the module's mistake, logged and dropped; it is no internal error."""
        try:
            handler = self._notices.get(method)
            if handler is not None:
                handler(scope, body)
        except OverLimit:
            raise
        except Exception as error:
            if (unsaid := scope.quota.admit("module_notice.refused")) is not None:
                why = repr(error)[:_ERROR_LENGTH]
                _log.warning(
                    "module_notice.refused",
                    module=scope.module_id,
                    method=shown(method),
                    error=why,
                    unsaid=unsaid,
                )


async def run_hook(scope: Scope, hook: str, **values: object) -> None:
    """Run one hook, within the manifest's deadline; `ModuleFailure` when it raised, overran, or died. A hook
    that the class does not define is not called."""
    if hook not in scope.hooks:
        return
    try:
        await scope.call(
            hook,
            f"{HOOK_PREFIX}{hook}",
            HookArguments(values=values),
            answer=HookAnswer,
            deadline=scope.hook_deadline,
            blame=False,
        )
    except CorralError as error:
        raise hook_failure(error, hook) from error


async def end_process(scope: Scope) -> None:
    """Kill the process and undo its registrations, even when the kill fails."""
    try:
        await scope.process.kill()
    finally:
        await scope.close()


async def unload(scope: Scope, *, grace: float) -> None:
    """`on_unload`, then the end of the process. Errors are logged and have no other effect."""
    try:
        await run_hook(scope, "on_unload")
    except ModuleFailure as failure:
        _log.warning(
            "module_unload.failed", module=scope.module_id, reason=failure.reason, error=failure.message
        )
    await scope.close()
    ending = await scope.process.finish(grace=grace)
    if ending.killed:
        _log.warning("module_finish.failed", module=scope.module_id, pid=scope.process.pid)
