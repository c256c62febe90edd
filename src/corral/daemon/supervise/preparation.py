"""From an order to something that can be spawned, stage by stage.

Each stage is a function of the preparation's state so far; later stages (templates, artifacts,
patches) take their place in the table. A stage that fails names itself in the answer to the start.
Whatever is done here can be done again: a start that was interrupted begins anew.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

import msgspec
import structlog

from corral.daemon.ports.held import HeldPorts
from corral.daemon.ports.probe import check_free
from corral.daemon.supervise.environment import build_environment, check_names
from corral.daemon.supervise.start_order import StartOrder
from corral.daemon.supervise.users import WorkloadUser, WorkloadUsers
from corral.daemon.supervise.working_directories import WorkingDirectories
from corral.domain.ids import RESTARTS_PER_START
from corral.domain.variables import InstanceFacts, built_in, substitute_all
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.sdk.runtime import RunSpec, run_name
from corral.wire.v1.instance_pb2 import StartPreparationStage

_STDBUF: Final = ("stdbuf", "-oL", "-eL")
_log = structlog.get_logger("corral.daemon.supervise")

VALIDATION: Final = "VALIDATION"
VARIABLE_SUBSTITUTION: Final = "VARIABLE_SUBSTITUTION"
PROCESS_START: Final = "PROCESS_START"


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a preparation needs to know of the node."""

    node_id: str
    address: str
    memory_mb: int


class Preparation(msgspec.Struct, kw_only=True):
    """A run on its way; stages fill in what is empty."""

    order: StartOrder
    run_directory: pathlib.Path
    user: WorkloadUser | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    directory: pathlib.Path | None = None


StageAction = Callable[[Preparation], Awaitable[None]]


class StageFailed(Exception):
    """A stage said no; `error` says why."""

    def __init__(self, stage: str, error: CorralError) -> None:
        super().__init__(f"{stage}: {error}")
        self.stage = stage
        self.error = error


class Preparer:
    """Runs the stages. One for the node; it keeps nothing of a single start."""

    def __init__(
        self,
        *,
        node: NodeFacts,
        users: WorkloadUsers,
        directories: WorkingDirectories,
        ports: HeldPorts,
        more_stages: Sequence[tuple[str, StageAction]] = (),
    ) -> None:
        self._node = node
        self._users = users
        self._directories = directories
        self._ports = ports
        self._stages: tuple[tuple[str, StageAction], ...] = (
            (VALIDATION, self._validate),
            *more_stages,
            (VARIABLE_SUBSTITUTION, self._substitute),
        )

    async def prepare(self, order: StartOrder, run_directory: pathlib.Path) -> RunSpec:
        """Everything for the spawn; StageFailed when a stage refuses."""
        work = Preparation(order=order, run_directory=run_directory)
        for name, action in self._stages:
            try:
                await action(work)
            except CorralError as error:
                raise StageFailed(name, error) from error
            except OSError as error:
                raise StageFailed(name, Retryable(Code.SPAWN_FAILED, f"{name} failed: {error}")) from error
        return await self._complete(work)

    async def _validate(self, work: Preparation) -> None:
        order = work.order
        check_names(order.env)
        if order.limits.memory_mb > self._node.memory_mb:
            raise Rejected(
                Code.NO_CAPACITY,
                f"it needs {order.limits.memory_mb} MB, this node has {self._node.memory_mb} MB in all",
                hint="lower memory_mb, or place it on a larger node",
                field="memory_mb",
            )
        work.user = await asyncio.to_thread(
            self._users.choose, order.instance_id, run_as=order.run_as, isolate=order.isolate
        )
        self._ports.take(run_name(order.instance_id, order.incarnation), order.ports)
        if order.ports:
            await asyncio.to_thread(check_free, order.ports)

    async def _substitute(self, work: Preparation) -> None:
        values = {**work.order.variables, **self._built_in(work.order)}
        command, missing = substitute_all(work.order.command, values)
        env_values, missing_in_env = substitute_all(work.order.env.values(), values)
        work.command = tuple(command)
        work.env = dict(zip(work.order.env, env_values, strict=True))
        if unresolved := (*missing, *missing_in_env):
            _log.warning(
                "instance.variables_unresolved",
                instance=work.order.instance_id,
                incarnation=work.order.incarnation,
                names=list(dict.fromkeys(unresolved)),
            )

    def _built_in(self, order: StartOrder) -> dict[str, str]:
        api = urllib.parse.urlsplit(order.api_url)
        return built_in(
            InstanceFacts(
                instance_id=order.instance_id,
                group=order.group,
                node_id=self._node.node_id,
                node_address=self._node.address,
                controller_address=api.hostname or "",
                controller_api_port=api.port or 0,
                port=order.primary_port,
                ports={port.name: port.port for port in order.ports},
                memory_mb=order.limits.memory_mb,
                max_players=order.max_players,
            )
        )

    async def _complete(self, work: Preparation) -> RunSpec:
        order, user = work.order, work.user
        assert user is not None
        # A first run begins with an empty directory; a restart by the node goes on where it was.
        fresh = order.incarnation % RESTARTS_PER_START == 0 and not order.static
        try:
            directory = self._directories.make(order.instance_id, user, empty=fresh)
            environment = build_environment(
                order,
                env=work.env,
                node_id=self._node.node_id,
                user=user.name,
                home=user.home if user.home and pathlib.Path(user.home).is_dir() else str(directory),
                time_zone=_time_zone(),
            )
        except CorralError as error:
            raise StageFailed(PROCESS_START, error) from error
        return RunSpec(
            instance_id=order.instance_id,
            incarnation=order.incarnation,
            command=_buffered(work.command) if order.line_buffered else work.command,
            environment=environment,
            directory=str(directory),
            run_directory=str(work.run_directory),
            run_as=user.run_as,
            stdin=order.stdin,
            tty=order.tty,
            limits=order.limits,
        )


def stage_number(name: str) -> StartPreparationStage:
    return cast(StartPreparationStage, StartPreparationStage.Value(f"START_PREPARATION_STAGE_{name}"))


def _buffered(command: tuple[str, ...]) -> tuple[str, ...]:
    """Line by line, where the node has the program that makes others do so."""
    return (*_STDBUF, *command) if shutil.which(_STDBUF[0]) else command


def _time_zone() -> str:
    """The host's zone by its name, which every program understands."""
    if given := os.environ.get("TZ"):
        return given
    _, found, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return name if found else "UTC"
