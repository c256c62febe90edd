"""Working directory of a static instance: seeded when it is missing, else updated."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
from typing import Final

import structlog

from corral.daemon.config_files.patches import apply_patches
from corral.daemon.prepare.abort import Abort, in_thread
from corral.daemon.prepare.ingredients import FileCache, bootstrap_key, fetch
from corral.daemon.prepare.staged_tree import make_directory
from corral.daemon.prepare.static_owners import check_hand_over, own_static
from corral.daemon.prepare.static_seeds import KEY_FILE, Digests, Seed, offers
from corral.daemon.prepare.static_trees import StaticTree
from corral.daemon.prepare.static_updates import StaticChanges, StaticUpdate, first_seed
from corral.daemon.prepare.substitution import Rendered
from corral.daemon.prepare.tree_builder import WorkingTreeBuilder
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories, give, owner_of
from corral.daemon.workload.run_secrets import patched_with_secrets
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import CONFIG_PATCH, PROCESS_START, TEMPLATE_APPLY, StartProgress
from corral.daemon.workload.variable_values import Values
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.groups.plans import Plan
from corral.sdk.runtime import run_name

_SHOWN: Final = 20
_log = structlog.get_logger("corral.daemon.prepare")


class StaticBuilder:
    """Makes and updates static directories, by means of `WorkingTreeBuilder`."""

    def __init__(
        self, trees: WorkingTreeBuilder, *, cache: FileCache, directories: WorkingDirectories, warm: WarmTrees
    ) -> None:
        self._trees = trees
        self._cache = cache
        self._directories = directories
        self._warm = warm
        self._digests = Digests(directories.static.parent / KEY_FILE)

    async def make(
        self,
        order: StartOrder,
        user: WorkloadUser,
        values: Values,
        progress: StartProgress,
        *,
        run_directory: pathlib.Path,
    ) -> pathlib.Path:
        """Make `DATA/static/<id>`: seeded when it is missing, else updated file by file."""
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
        progress: StartProgress,
    ) -> None:
        owner = owner_of(user)
        async with self._cache.use() as use:
            found = await fetch(plan, use, progress)
            rendered = await self._trees.fill(
                plan, found, staged, owner, values, progress, first_run=bootstrap_key(plan, user)
            )
        offered = offers(plan, found)

        def settle(_: Abort) -> None:
            directories = found.layout.directories
            seed = first_seed(staged, plan, offered, rendered, values, self._digests, directories)
            tree.write_seed(seed)  # first: a directory without a seed has unknown content
            tree.move_all_in(staged)

        with progress.stage(PROCESS_START):
            give(staged, user)
            await in_thread(settle)

    async def _update(
        self,
        tree: StaticTree,
        plan: Plan,
        staged: pathlib.Path,
        user: WorkloadUser,
        values: Values,
        progress: StartProgress,
    ) -> None:
        with progress.stage(TEMPLATE_APPLY):
            if (owner := owner_of(user)) is not None:
                await asyncio.to_thread(check_hand_over, tree.path, owner)  # before anything is changed
            update = await asyncio.to_thread(StaticUpdate, tree, plan, values, self._digests)
            needs_layers = await asyncio.to_thread(lambda: update.needs_layers)
        changes = StaticChanges()
        if needs_layers:
            changes = await self._lay_changed(update, plan, staged, user, values, progress)
        else:
            with progress.stage(TEMPLATE_APPLY):
                make_directory(staged, owner_of(user))
        unedited: frozenset[str] = frozenset()
        if plan.patches:
            progress.secret_files |= patched_with_secrets(plan)
            with progress.stage(CONFIG_PATCH):
                unedited = await in_thread(
                    lambda abort: self._patch_static(tree, update, plan, staged, user, values, abort)
                )
        with progress.stage(PROCESS_START):
            seed = await in_thread(lambda _: self._settle(tree, update, staged, user, changes, unedited))
        progress.secret_files |= set(seed.hidden)
        progress.kept_files = seed.kept

    async def _lay_changed(
        self,
        update: StaticUpdate,
        plan: Plan,
        staged: pathlib.Path,
        user: WorkloadUser,
        values: Values,
        progress: StartProgress,
    ) -> StaticChanges:
        """Build the replaced, added and compared files in the staging directory, with variables; only the replaced and
        the added ones stay there."""
        async with self._cache.use() as use:
            found = await fetch(plan, use, progress)
            offered = offers(plan, found)
            with progress.stage(TEMPLATE_APPLY):
                choice = await asyncio.to_thread(update.choose, offered)
            layout = found.layout.only(update.made_aside(choice, offered))
            filling = await self._trees.filling(plan, staged, owner_of(user), progress, size=layout.size)

            def work(abort: Abort) -> Rendered:
                filling.lay(layout, found, abort)
                return filling.render(found.texts & layout.paths, values, abort)

            rendered = await self._trees.in_turn(work)
        with progress.stage(TEMPLATE_APPLY):
            equal = await asyncio.to_thread(update.equal, choice, offered, staged)
        return StaticChanges(
            choice=choice,
            offered=offered,
            rendered=rendered,
            equal=equal,
            directories=found.layout.directories,
        )

    def _patch_static(
        self,
        tree: StaticTree,
        update: StaticUpdate,
        plan: Plan,
        staged: pathlib.Path,
        user: WorkloadUser,
        values: Values,
        abort: Abort,
    ) -> frozenset[str]:
        """Apply the patches, which hold for every start, to copies of the directory's files. Returns those of these
        files that were not edited."""
        open_files = tree.open_to_change(patch.file for patch in plan.patches)
        patches = [patch for patch in plan.patches if patch.file in open_files]
        unedited = update.unedited(sorted(open_files))
        tree.bring(staged, sorted(open_files), owner_of(user), abort)
        apply_patches(staged, patches, values=values.all)
        return unedited

    def _settle(
        self,
        tree: StaticTree,
        update: StaticUpdate,
        staged: pathlib.Path,
        user: WorkloadUser,
        changes: StaticChanges,
        unedited: frozenset[str],
    ) -> Seed:
        owner = owner_of(user)
        seed = update.seed(staged, changes, unedited=unedited)
        changed = tree.changed_by(staged)
        update.announce(seed, changed)
        tree.move_in(staged, changed, owner)
        tree.make_directories(update.new_directories(changes.directories), owner)
        if owner is not None:
            own_static(tree.path, owner)
        give(tree.path, user)
        if seed != update.stored:
            tree.write_seed(seed)
        _log_kept(tree.path, seed)
        return seed


def _log_kept(path: pathlib.Path, seed: Seed) -> None:
    if seed.kept:
        shown = dict(itertools.islice(sorted(seed.kept.items()), _SHOWN))
        _log.warning("static_files.kept", path=str(path), count=len(seed.kept), kept=shown)
