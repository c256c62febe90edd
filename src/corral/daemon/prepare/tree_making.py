"""The working directory of a run, from its plan: fetched, laid aside, filled in, patched, put in place."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pathlib
from typing import Final

import msgspec
import structlog

from corral.daemon.config_files.patching import apply_patches
from corral.daemon.disk import check_room
from corral.daemon.prepare.abort import in_thread
from corral.daemon.prepare.cache_port import FileCache
from corral.daemon.prepare.copying import Copier, clones_work
from corral.daemon.prepare.ingredients import Ingredients, bootstrap_key, fetch
from corral.daemon.prepare.layout import Layout
from corral.daemon.prepare.materialise import make_directory, materialise
from corral.daemon.prepare.stages import (
    BOOTSTRAP_WARMUP,
    CONFIG_PATCH,
    PROCESS_START,
    TEMPLATE_APPLY,
    VARIABLE_SUBSTITUTION,
    Progress,
)
from corral.daemon.prepare.start_order import StartOrder
from corral.daemon.prepare.substitution import Rendered, strictly, substitute_files
from corral.daemon.prepare.trees import lay_beneath
from corral.daemon.prepare.users import WorkloadUser
from corral.daemon.prepare.values import Values
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories, give, owner_of
from corral.domain.file_paths import globs
from corral.domain.plans import Plan
from corral.sdk.runtime import run_name

_log = structlog.get_logger("corral.daemon.prepare")
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class TreeMaker:
    """Makes directories. One for the node; it keeps nothing of a single start."""

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
        self._clones: dict[pathlib.Path, bool] = {}
        """By the place of the directories: whether files of the cache can be cloned to there."""

    async def make(
        self, order: StartOrder, user: WorkloadUser, values: Values, progress: Progress
    ) -> pathlib.Path:
        """`DATA/running/<id>`, complete, in place of whatever lay there. StageFailed; then, and when it is
        cancelled, what lay there is untouched and nothing half-made is left."""
        assert order.plan is not None
        plan, owner = order.plan, owner_of(user)
        staged = self._directories.staging(run_name(order.instance_id, order.incarnation), static=False)
        try:
            with self._warm.preparing():
                async with self._cache.use() as use:
                    found = await fetch(plan, use, progress)
                    await self.lay(plan, found, staged, owner, progress, warm=order.isolate != "uid")
                await self.render(plan, staged, found.texts, values, owner, progress)
                with progress.stage(CONFIG_PATCH):
                    if plan.patches:
                        await in_thread(lambda _: apply_patches(staged, plan.patches, values=values.all))
            with progress.stage(PROCESS_START):
                give(staged, user)
                return self._directories.place(staged, order.instance_id, order.incarnation)
        finally:
            self._directories.drop(staged)

    async def lay(
        self,
        plan: Plan,
        found: Ingredients,
        staged: pathlib.Path,
        owner: tuple[int, int] | None,
        progress: Progress,
        *,
        warm: bool,
    ) -> None:
        """Everything that is alike for every run, from the pool or anew."""
        if not warm or not found.layout.paths:
            await self._lay_anew(plan, found, staged, owner, progress)
            return
        key = tree_key(plan, owner)
        if not self._warm.take(key, staged):
            await self._lay_anew(plan, found, staged, owner, progress)

        async def make(target: pathlib.Path) -> None:
            async with self._cache.use() as use:
                quiet = Progress()
                await self._lay_anew(plan, await fetch(plan, use, quiet), target, owner, quiet)

        self._warm.want(key, make)

    async def _lay_anew(
        self,
        plan: Plan,
        found: Ingredients,
        staged: pathlib.Path,
        owner: tuple[int, int] | None,
        progress: Progress,
    ) -> None:
        make_directory(staged, owner)
        await self.lay_layout(plan, found.layout, found, staged, owner, progress)
        key = bootstrap_key(plan)
        if key is None:
            return
        with progress.stage(BOOTSTRAP_WARMUP):
            if (tree := found.use.bootstrap(key)) is not None:
                copier = Copier(clone=await self._can_clone(staged.parent), link=False, owner=owner)
                await in_thread(lambda abort: lay_beneath(tree, staged, copier, owner, abort))

    async def lay_layout(
        self,
        plan: Plan,
        layout: Layout,
        found: Ingredients,
        staged: pathlib.Path,
        owner: tuple[int, int] | None,
        progress: Progress,
    ) -> None:
        if not layout.paths and not layout.directories:
            return
        with progress.stage(TEMPLATE_APPLY):
            clone = await self._can_clone(staged.parent)
            self._check_room(plan, staged.parent, 0 if clone else layout.size)
            linked = owner is not None and owner[0] != os.geteuid()
            copier = Copier(clone=clone, link=linked, owner=owner)
            await in_thread(
                lambda abort: materialise(
                    layout, staged, content=found.content, copier=copier, abort=abort, owner=owner
                )
            )

    def _check_room(self, plan: Plan, place: pathlib.Path, size: int) -> None:
        try:
            check_room(place, reserve_mb=self._reserve_mb, wanted_mb=plan.disk_mb, copied_bytes=size)
        except Exception:
            self._warm.clear()  # the next try has this room as well
            raise

    async def _can_clone(self, place: pathlib.Path) -> bool:
        if place not in self._clones:
            self._clones[place] = await asyncio.to_thread(clones_work, self._cache_root, place)
        return self._clones[place]

    async def render(
        self,
        plan: Plan,
        staged: pathlib.Path,
        texts: frozenset[str],
        values: Values,
        owner: tuple[int, int] | None,
        progress: Progress,
    ) -> Rendered:
        """Variables in those of these files that the globs choose."""
        with progress.stage(VARIABLE_SUBSTITUTION):
            chosen = globs(plan.substitute)
            if not chosen:
                return Rendered()
            paths = sorted(path for path in texts if chosen.matches(path))
            rendered = await in_thread(
                lambda abort: substitute_files(staged, paths, values, abort=abort, owner=owner)
            )
            if plan.strict_variables:
                strictly(rendered.missing)
            elif rendered.missing:
                _log.warning(
                    "instance.variables_unresolved",
                    group=plan.group,
                    where=[str(m) for m in rendered.missing[:20]],
                )
            return rendered

    async def keep_first_run(self, order: StartOrder) -> None:
        """What this run made at its first start is there for the next ones, where the group says so."""
        key = bootstrap_key(order.plan) if order.plan is not None else None
        if key is None or order.plan is None or order.static:
            return
        async with self._cache.use() as use:
            if use.bootstrap(key) is not None:
                return
        directory = self._directories.path(order.instance_id, static=order.static)
        await self._cache.keep_bootstrap(key, directory, order.plan.warm_paths)


def tree_key(plan: Plan, owner: tuple[int, int] | None) -> str:
    """Equal for trees that are equal before variables and patches."""
    parts = (plan.templates, plan.merge, plan.artifact, plan.extensions, bootstrap_key(plan), owner)
    return hashlib.sha256(_ENCODER.encode(parts)).hexdigest()
