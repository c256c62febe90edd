"""Builder of a run's working directory from its plan: fetch, lay out in staging, fill in, patch, put in place."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.daemon.cache.bootstrap_store import BootstrapKey, FileGuard
from corral.daemon.node.disk_space import check_room
from corral.daemon.prepare.abort import Abort, in_thread
from corral.daemon.prepare.file_copy import clones_work
from corral.daemon.prepare.ingredients import FileCache, Ingredients, bootstrap_key, fetch
from corral.daemon.prepare.small_contents import SmallContents
from corral.daemon.prepare.staged_tree import TreeFill
from corral.daemon.prepare.substitution import Rendered
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories, give, owner_of
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import PROCESS_START, TEMPLATE_APPLY, StartProgress
from corral.daemon.workload.variable_values import Values
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.groups.plans import Plan
from corral.errors import CorralError
from corral.sdk.runtime import run_name
from corral.system.trees.entries import open_tree
from corral.system.trees.owners import hand_over

_AT_ONCE: Final = 3
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_log = structlog.get_logger("corral.daemon.prepare")


class WorkingTreeBuilder:
    """Makes directories. One for the node; it stores nothing about a single start."""

    def __init__(
        self,
        *,
        cache: FileCache,
        cache_root: pathlib.Path,
        directories: WorkingDirectories,
        warm: WarmTrees,
        reserve_mb: int,
    ) -> None:
        self._cache = cache
        self._cache_root = cache_root
        self._directories = directories
        self._warm = warm
        self._reserve_mb = reserve_mb
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._small = SmallContents()
        self._clones: dict[pathlib.Path, bool] = {}
        """By the parent of the directories: whether files of the cache can be cloned to there."""

    async def make(
        self, order: StartOrder, user: WorkloadUser, values: Values, progress: StartProgress
    ) -> pathlib.Path:
        """Make `DATA/running/<id>`, complete, replacing an existing one. StageFailed; then, and when it is cancelled,
        the existing one is untouched and nothing incomplete is left."""
        assert order.plan is not None
        plan, owner = order.plan, owner_of(user)
        with progress.stage(TEMPLATE_APPLY):
            staged = self._directories.staging(run_name(order.instance_id, order.incarnation), static=False)
        try:
            with self._warm.preparing():
                async with self._cache.use() as use:
                    found = await fetch(plan, use, progress)
                    links = may_link(owner)
                    first_run = bootstrap_key(plan, user)
                    if first_run is not None and use.bootstrap(first_run) is None:
                        first_run = None  # no results yet: the trees of now are not those of later
                    key = tree_key(plan, first_run, links=links) if found.layout.paths else ""
                    ahead = bool(key) and self._warm.take(key, staged)
                    await self.fill(
                        plan, found, staged, owner, values, progress, laid=ahead, first_run=first_run
                    )
            if key:
                self._warm.request(key, lambda target: self._make_ahead(plan, target, first_run, links=links))
            await progress.until_stored()
            with progress.stage(PROCESS_START):
                give(staged, user)
                return self._directories.place(staged, order.instance_id, order.incarnation)
        finally:
            self._directories.drop(staged)

    async def fill(
        self,
        plan: Plan,
        found: Ingredients,
        staged: pathlib.Path,
        owner: tuple[int, int] | None,
        values: Values | None,
        progress: StartProgress,
        *,
        first_run: BootstrapKey | None,
        laid: bool = False,
        links: bool | None = None,
    ) -> Rendered:
        """Build the whole directory at `staged`; `laid`: all but variables and patches is there already, owned by the
        daemon. Without values, variables and patches are omitted."""
        size = 0 if laid else found.layout.size
        filling = await self.filling(plan, staged, owner, progress, size=size, links=links)
        results = found.use.bootstrap(first_run) if first_run is not None else None

        def work(abort: Abort) -> Rendered:
            if not laid:
                filling.lay(found.layout, found, abort)
                filling.lay_first_run(results, abort)
            elif filling.owner is not None:
                with open_tree(staged) as root:  # files linked into the cache stay the daemon's
                    hand_over(root, filling.owner, check=abort.check)
            if values is None:
                return Rendered()
            rendered = filling.render(found.texts, values, abort)
            filling.patch(values)
            return rendered

        return await self.in_turn(work)

    async def in_turn(self, work: Callable[[Abort], Rendered]) -> Rendered:
        """Run in a thread, a few at a time: orders and reports need threads as well, and must not wait until large
        trees are copied."""
        async with self._turns:
            return await in_thread(work)

    async def filling(
        self,
        plan: Plan,
        staged: pathlib.Path,
        owner: tuple[int, int] | None,
        progress: StartProgress,
        *,
        size: int,
        links: bool | None = None,
    ) -> TreeFill:
        """A directory to fill; DISK_FULL when files of this size do not fit. `links`: whether read-only files may be
        links; None: as is safe for the owner."""
        with progress.stage(TEMPLATE_APPLY):
            clone = await self._can_clone(staged.parent)
            try:
                copied = 0 if clone else size
                check_room(
                    staged.parent, reserve_mb=self._reserve_mb, needed_mb=plan.disk_mb, copied_bytes=copied
                )
            except CorralError:
                self._warm.clear()  # the next attempt can use this room
                raise
        link = may_link(owner) if links is None else links
        return TreeFill(
            plan=plan,
            staged=staged,
            owner=owner if owner != (os.geteuid(), os.getegid()) else None,  # new files are its own anyway
            clone=clone,
            link=link,
            progress=progress,
            small=self._small,
        )

    async def _make_ahead(
        self, plan: Plan, target: pathlib.Path, first_run: BootstrapKey | None, *, links: bool
    ) -> None:
        """Build a warm tree, which belongs to no run until one takes it."""
        async with self._cache.use() as use:
            quiet = StartProgress()
            found = await fetch(plan, use, quiet)
            await self.fill(plan, found, target, None, None, quiet, first_run=first_run, links=links)

    async def _can_clone(self, place: pathlib.Path) -> bool:
        if place not in self._clones:
            self._clones[place] = await asyncio.to_thread(clones_work, self._cache_root, place)
        return self._clones[place]

    async def keep_first_run(self, order: StartOrder, user: WorkloadUser, guard: FileGuard) -> None:
        """Store what this run, which was ready and has ended, created, for the next ones of its group, where the group
        is configured so. Only for a user of this workload alone: another workload of the same user could write into the
        directory even now. Files with secrets are excluded: they are filled in anew at each start, and what the
        workload wrote of them must not be stored."""
        key = bootstrap_key(order.plan, user) if order.plan is not None else None
        if key is None or order.static:
            return
        if not user.isolated:
            why = "other workloads may have the same user; leave run_as out, or set isolate: uid"
            _log.info("first_run.skipped", instance=order.instance_id, user=user.name, reason=why)
            return
        async with self._cache.use() as use:
            if use.bootstrap(key) is not None:
                return
        directory = self._directories.path(order.instance_id, static=order.static)
        await self._cache.keep_bootstrap(key, directory, owner=user.uid, guard=guard)


def tree_key(plan: Plan, first_run: BootstrapKey | None, *, links: bool) -> str:
    """Equal for trees that are equal before variables, patches and the change of owner."""
    parts = (plan.templates, plan.merge, plan.artifact, plan.extensions, first_run, links)
    return hashlib.sha256(_ENCODER.encode(parts)).hexdigest()


def may_link(owner: tuple[int, int] | None) -> bool:
    """Whether files that stay the daemon's are safe from this user."""
    return owner is not None and owner[0] != os.geteuid()
