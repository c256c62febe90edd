"""The working directory of a static instance: seeded when it is not there, else brought up to date."""

from __future__ import annotations

import asyncio
import pathlib

from corral.daemon.config_files.patching import apply_patches
from corral.daemon.prepare.abort import Abort, in_thread
from corral.daemon.prepare.cache_port import FileCache
from corral.daemon.prepare.ingredients import bootstrap_key, fetch
from corral.daemon.prepare.materialise import make_directory
from corral.daemon.prepare.secret_files import patched_with_secrets
from corral.daemon.prepare.stages import CONFIG_PATCH, PROCESS_START, TEMPLATE_APPLY, Progress
from corral.daemon.prepare.start_order import StartOrder
from corral.daemon.prepare.static_owners import check_hand_over, own_static
from corral.daemon.prepare.static_trees import Seed, StaticTree, merged_rendering, seed_of
from corral.daemon.prepare.substitution import Rendered
from corral.daemon.prepare.tree_making import TreeMaker
from corral.daemon.prepare.users import WorkloadUser
from corral.daemon.prepare.values import Values
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories, give, owner_of
from corral.domain.plans import Plan
from corral.sdk.runtime import run_name


class StaticMaker:
    """Makes and updates them, with the means of `TreeMaker`."""

    def __init__(
        self, trees: TreeMaker, *, cache: FileCache, directories: WorkingDirectories, warm: WarmTrees
    ) -> None:
        self._trees = trees
        self._cache = cache
        self._directories = directories
        self._warm = warm

    async def make(
        self,
        order: StartOrder,
        user: WorkloadUser,
        values: Values,
        progress: Progress,
        *,
        run_directory: pathlib.Path,
    ) -> pathlib.Path:
        """`DATA/static/<id>`: seeded when it is not there, else brought up to date file by file."""
        assert order.plan is not None
        tree = StaticTree(self._directories.static, order.instance_id, order.plan)
        with progress.stage(TEMPLATE_APPLY):
            await asyncio.to_thread(self._directories.take_over, order.instance_id, run_directory)
            staged = self._directories.staging(run_name(order.instance_id, order.incarnation), static=True)
        try:
            with self._warm.preparing():
                if tree.exists:
                    await self._update(tree, order.plan, staged, user, values, progress)
                else:
                    await self._seed(tree, order.plan, staged, user, values, progress)
        finally:
            self._directories.drop(staged)
        return tree.path

    async def _seed(
        self,
        tree: StaticTree,
        plan: Plan,
        staged: pathlib.Path,
        user: WorkloadUser,
        values: Values,
        progress: Progress,
    ) -> None:
        owner = owner_of(user)
        async with self._cache.use() as use:
            found = await fetch(plan, use, progress)
            rendered = await self._trees.fill(
                plan, found, staged, owner, values, progress, first_run=bootstrap_key(plan, user)
            )
        with progress.stage(PROCESS_START):
            give(staged, user)
            await in_thread(lambda _: tree.move_all_in(staged))
            await in_thread(lambda _: tree.write_seed(seed_of(plan, rendered)))

    async def _update(
        self,
        tree: StaticTree,
        plan: Plan,
        staged: pathlib.Path,
        user: WorkloadUser,
        values: Values,
        progress: Progress,
    ) -> None:
        with progress.stage(TEMPLATE_APPLY):
            if (owner := owner_of(user)) is not None:
                await asyncio.to_thread(check_hand_over, tree.path, owner)  # before anything is changed
            stale = await asyncio.to_thread(tree.stale, values)
        rendered = Rendered()
        if stale is None or stale:
            rendered = await self._lay_stale(tree, plan, staged, stale, user, values, progress)
        else:
            with progress.stage(TEMPLATE_APPLY):
                make_directory(staged, owner_of(user))
        if plan.patches:
            progress.secret_files |= patched_with_secrets(plan)
            with progress.stage(CONFIG_PATCH):
                await in_thread(lambda abort: self._patch_static(tree, plan, staged, user, values, abort))
        with progress.stage(PROCESS_START):
            seed = seed_of(plan, merged_rendering(tree, rendered, stale))
            await in_thread(lambda _: self._settle(tree, staged, user, seed))

    async def _lay_stale(
        self,
        tree: StaticTree,
        plan: Plan,
        staged: pathlib.Path,
        stale: frozenset[str] | None,
        user: WorkloadUser,
        values: Values,
        progress: Progress,
    ) -> Rendered:
        """What has changed, made aside and filled in; None: everything that may be changed."""
        async with self._cache.use() as use:
            found = await fetch(plan, use, progress)
            wanted = tree.open_to_change(found.layout.paths) if stale is None else stale
            layout = found.layout.only(wanted)
            filling = await self._trees.filling(plan, staged, owner_of(user), progress, size=layout.size)

            def work(abort: Abort) -> Rendered:
                filling.lay(layout, found, abort)
                return filling.render(found.texts & layout.paths, values, abort)

            return await self._trees.in_turn(work)

    def _patch_static(
        self,
        tree: StaticTree,
        plan: Plan,
        staged: pathlib.Path,
        user: WorkloadUser,
        values: Values,
        abort: Abort,
    ) -> None:
        """Patches hold for every start: they are made in copies of what the world has."""
        open_files = tree.open_to_change(patch.file for patch in plan.patches)
        patches = [patch for patch in plan.patches if patch.file in open_files]
        tree.bring(staged, sorted(open_files), owner_of(user), abort)
        apply_patches(staged, patches, values=values.all)

    def _settle(self, tree: StaticTree, staged: pathlib.Path, user: WorkloadUser, seed: Seed) -> None:
        owner = owner_of(user)
        tree.move_in(staged, owner)
        if owner is not None:
            own_static(tree.path, owner)
        give(tree.path, user)
        if seed != tree.seed():
            tree.write_seed(seed)  # last: until it is there, the next start does all of this again
