"""Start pipeline: from an order to a `PreparedStart`, stage by stage, with everything on the node that it needs.

Validation, then the files (`tree_builder`), then command and environment: a `PreparedStart`, which the node's modules
may change before it is finished. A stage that fails is named in the answer to the start. Every stage can be repeated:
an interrupted start begins anew, and leaves nothing but files in `.staging`.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterable
from typing import Final

import structlog

from corral.daemon.node import host_info
from corral.daemon.node.data_directory import AUTHORITY_FILE
from corral.daemon.node.disk_space import check_room
from corral.daemon.node.port_probe import HeldPorts, check_free
from corral.daemon.prepare.ingredients import FileCache
from corral.daemon.prepare.prepared_start import LaunchCommand, PreparedStart, command_line, propose
from corral.daemon.prepare.static_directory import StaticBuilder
from corral.daemon.prepare.static_owners import own_static
from corral.daemon.prepare.tree_builder import WorkingTreeBuilder
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories, owner_of
from corral.daemon.workload.environment import check_names
from corral.daemon.workload.java import find_java
from corral.daemon.workload.run_secrets import RunMask, write_run_secrets
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import (
    TEMPLATE_APPLY,
    VALIDATION,
    VARIABLE_SUBSTITUTION,
    StartProgress,
)
from corral.daemon.workload.variable_values import (
    NodeFacts,
    Secrets,
    Values,
    probed_address,
    resolve_values,
    unresolved_error,
)
from corral.daemon.workload.workload_users import WorkloadUser, WorkloadUsers
from corral.domain.groups.plans import Plan
from corral.domain.groups.probes import check_probes
from corral.domain.groups.secret_masks import refuse_in_command
from corral.domain.ids import RESTARTS_PER_START
from corral.errors import Code, Rejected
from corral.sdk.runtime import run_name
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy
from corral.system.trees.entries import is_tree

_log = structlog.get_logger("corral.daemon.prepare")


class Preparer:
    """Runs the stages. One for the node; it stores nothing about a single start."""

    def __init__(
        self,
        *,
        node: NodeFacts,
        users: WorkloadUsers,
        directories: WorkingDirectories,
        ports: HeldPorts,
        trees: WorkingTreeBuilder,
        statics: StaticBuilder,
        secrets: Secrets,
        java: str = "",
        reserve_mb: int = 0,
    ) -> None:
        self._node = node
        self._users = users
        self._directories = directories
        self._ports = ports
        self._trees = trees
        self._statics = statics
        self._secrets = secrets
        self._java = java
        self._reserve_mb = reserve_mb

    async def prepare(
        self,
        order: StartOrder,
        run_directory: pathlib.Path,
        progress: StartProgress,
        mask: RunMask,
        *,
        anew: bool = False,
    ) -> PreparedStart:
        """Run all stages before the modules' start hooks, see `finish`; StageFailed when a stage refuses. `mask` hides
        every secret it receives from then on; `anew`: the directory is made again although this is a restart.
        Cancelled, it stops at once."""
        with progress.stage(VALIDATION):
            user, java, values = await self._validate(order, mask)
        directory = await self._directory(order, user, values, run_directory, progress, anew=anew)
        with progress.stage(VARIABLE_SUBSTITUTION):
            if values.secret:
                first = order.incarnation % RESTARTS_PER_START == 0
                await asyncio.to_thread(
                    write_run_secrets,
                    run_directory,
                    progress.secret_files,
                    values.secrets,
                    earlier=order.static or not first,
                )
            line = self._substitute(order, java, values)
        return PreparedStart(
            order=order,
            user=user,
            line=line,
            directory=directory,
            run_directory=run_directory,
            authority_file=self._node.authority_file,
            proposal=propose(
                line, order, secrets=values.secrets, node_id=self._node.node_id, directory=directory
            ),
        )

    def mask_of(self, order: StartOrder, run_directory: pathlib.Path) -> RunMask:
        """The mask for every message about this run."""
        return RunMask(order, run_directory, node=self._node, secrets=self._secrets)

    def probed_address(self, order: StartOrder) -> str:
        """The address for probes of the network."""
        return probed_address(order, self._node)

    async def keep_first_run(self, order: StartOrder, mask: RunMask) -> None:
        """Store the first-run results of a run that was ready and has ended, for other starts to use."""
        if order.plan is not None and order.plan.warm_paths:
            user = await asyncio.to_thread(
                self._users.choose,
                order.instance_id,
                run_as=order.run_as,
                isolate=order.isolate,
                static=order.static,
            )
            guard = await asyncio.to_thread(mask.guard, put_names=False)
            await self._trees.keep_first_run(order, user, guard)

    async def _validate(self, order: StartOrder, mask: RunMask) -> tuple[WorkloadUser, str, Values]:
        check_names(order.env)
        if order.plan is not None:
            refuse_in_command(order.plan)
        check_probes(order.probes, {port.name for port in order.ports})
        if order.limits.memory_mb > self._node.memory_mb:
            raise Rejected(
                Code.NO_CAPACITY,
                f"it needs {order.limits.memory_mb} MB, this node has {self._node.memory_mb} MB in all",
                hint="lower memory_mb, or place it on a larger node",
                field="memory_mb",
            )
        self._ports.take(run_name(order.instance_id, order.incarnation), order.ports)
        return await asyncio.to_thread(self._look_around, order, mask)

    def _look_around(self, order: StartOrder, mask: RunMask) -> tuple[WorkloadUser, str, Values]:
        """Checks of the host: Java, user, ports, room, secrets. Blocks."""
        plan, java = order.plan, ""
        if not order.command and plan is not None and plan.jvm is not None:
            java = find_java(plan.jvm.java, self._java)
        user = self._users.choose(
            order.instance_id, run_as=order.run_as, isolate=order.isolate, static=order.static
        )
        if order.ports:
            check_free(order.ports)
        check_room(
            self._directories.static if order.static else self._directories.running,
            reserve_mb=self._reserve_mb,
            needed_mb=plan.disk_mb if plan is not None else 0,
        )
        values = resolve_values(order, self._node, self._secrets)
        if values.secret:
            mask.give(values.secrets)
        return user, java, values

    async def _directory(
        self,
        order: StartOrder,
        user: WorkloadUser,
        values: Values,
        run_directory: pathlib.Path,
        progress: StartProgress,
        *,
        anew: bool,
    ) -> pathlib.Path:
        """Make the directory of a first run; a restart by the node keeps the one it had, if it can."""
        path = self._directories.path(order.instance_id, static=order.static)
        first = order.incarnation % RESTARTS_PER_START == 0
        goes_on = not first and is_tree(path) and (order.static or not anew)
        if goes_on and await self._is_owned(path, user, order, progress):
            self._directories.hold(order.instance_id, order.incarnation)
            return path
        has_tree = order.plan is not None and has_files(order.plan)
        if has_tree and not order.static:
            return await self._trees.make(order, user, values, progress)
        await progress.until_stored()
        if has_tree:
            return await self._statics.make(order, user, values, progress, run_directory=run_directory)
        with progress.stage(TEMPLATE_APPLY):
            if order.static:
                return await asyncio.to_thread(
                    self._directories.make_static, order.instance_id, user, run_directory
                )
            return self._directories.make(order.instance_id, order.incarnation, user, empty=True)

    async def _is_owned(
        self, path: pathlib.Path, user: WorkloadUser, order: StartOrder, progress: StartProgress
    ) -> bool:
        """Whether the run can use the directory of the previous one: the way users are chosen may have changed since. A
        static directory is given to its user; another is made anew, because its files belong to another user."""
        owner = owner_of(user)
        with progress.stage(TEMPLATE_APPLY):
            if owner is None or path.stat().st_uid == user.uid:
                return True
            if order.static:
                await asyncio.to_thread(own_static, path, owner)
            return order.static

    def _substitute(self, order: StartOrder, java: str, values: Values) -> LaunchCommand:
        line, missing, missing_in_env = command_line(order, java, values)
        if order.plan is not None and order.plan.strict_variables:
            _refuse("command", missing)
            _refuse("env", missing_in_env)
        elif missing or missing_in_env:
            _log.warning(
                "variable_lookup.failed",
                instance=order.instance_id,
                incarnation=order.incarnation,
                names=list(dict.fromkeys((*missing, *missing_in_env))),
            )
        return line


def has_files(plan: Plan) -> bool:
    """Whether anything has to be laid into the directory."""
    return bool(plan.templates or plan.artifact or plan.extensions or plan.patches)


def _refuse(where: str, names: Iterable[str]) -> None:
    if found := tuple(names):
        raise unresolved_error(found, where)


class Preparation:
    """Built by plain constructors; `close` ends the building of warm trees."""

    def __init__(
        self, config: DaemonConfig, *, node_id: str, address: str, cache: FileCache, entropy: Entropy
    ) -> None:
        data, reserve_mb = config.data, config.disk.reserve_mb
        self.users: Final = WorkloadUsers(config.instances, data=data)
        self.directories: Final = WorkingDirectories(data, entropy=entropy)
        self.ports: Final = HeldPorts()
        self._warm = WarmTrees(self.directories, entropy=entropy, each=config.cache.warm_trees)
        trees = WorkingTreeBuilder(
            cache=cache,
            cache_root=data / "cache",
            directories=self.directories,
            warm=self._warm,
            reserve_mb=reserve_mb,
        )
        self.preparer: Final = Preparer(
            node=NodeFacts(
                node_id=node_id,
                address=address,
                memory_mb=host_info.total_memory_mb(),
                labels=config.node.labels,
                authority_file=str(data / AUTHORITY_FILE),
            ),
            users=self.users,
            directories=self.directories,
            ports=self.ports,
            trees=trees,
            statics=StaticBuilder(trees, cache=cache, directories=self.directories, warm=self._warm),
            secrets=Secrets(data / "secrets"),
            java=config.java.path,
            reserve_mb=reserve_mb,
        )

    async def close(self) -> None:
        await self._warm.close()
