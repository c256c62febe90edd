"""Filling a staged directory: layers, first-run results, variables, patches. Blocking, for one thread.

All of it is one piece of work in one thread: on a busy node each way to a thread and back costs more than
what a small template has to do there.
"""

from __future__ import annotations

import pathlib

import msgspec
import structlog

from corral.daemon.config_files.patches import apply_patches
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import Copier
from corral.daemon.prepare.ingredients import Ingredients
from corral.daemon.prepare.layout import Layout
from corral.daemon.prepare.materialise import make_directory, materialise
from corral.daemon.prepare.substitution import Rendered, strictly, substitute_files
from corral.daemon.prepare.tree_overlay import lay_beneath
from corral.daemon.workload.secret_files import patched_with_secrets
from corral.daemon.workload.start_stages import (
    BOOTSTRAP_WARMUP,
    CONFIG_PATCH,
    TEMPLATE_APPLY,
    VARIABLE_SUBSTITUTION,
    Progress,
)
from corral.daemon.workload.variable_values import Values
from corral.domain.file_paths import globs
from corral.domain.plans import Plan

_log = structlog.get_logger("corral.daemon.prepare")


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """One directory on its way. Each method is a stage, or a part of one."""

    plan: Plan
    staged: pathlib.Path
    owner: tuple[int, int] | None
    clone: bool
    link: bool
    """Read-only files may be links into the cache: whoever runs there cannot write to them."""
    progress: Progress

    def lay(self, layout: Layout, found: Ingredients, abort: Abort) -> None:
        """The files of `layout` into a new directory."""
        with self.progress.stage(TEMPLATE_APPLY):
            make_directory(self.staged, self.owner)
            materialise(
                layout,
                self.staged,
                content=found.content,
                copier=Copier(clone=self.clone, link=self.link, owner=self.owner),
                abort=abort,
                owner=self.owner,
            )

    def lay_first_run(self, tree: pathlib.Path | None, abort: Abort) -> None:
        """What a first run of the program made, where nothing else lies."""
        if tree is None:
            return
        with self.progress.stage(BOOTSTRAP_WARMUP):
            copier = Copier(clone=self.clone, link=False, owner=self.owner)
            lay_beneath(tree, self.staged, copier, self.owner, abort)

    def render(self, texts: frozenset[str], values: Values, abort: Abort) -> Rendered:
        """Variables in those of these files that the globs choose."""
        chosen = globs(self.plan.substitute)
        if not chosen:
            return Rendered()
        with self.progress.stage(VARIABLE_SUBSTITUTION):
            paths = sorted(path for path in texts if chosen.matches(path))
            rendered = substitute_files(self.staged, paths, values, abort=abort, owner=self.owner)
            self.progress.secret_files |= rendered.hidden
            if self.plan.strict_variables:
                strictly(rendered.missing)
            elif rendered.missing:
                where = [str(missing) for missing in rendered.missing[:20]]
                _log.warning("instance.variables_unresolved", group=self.plan.group, where=where)
            return rendered

    def patch(self, values: Values) -> None:
        if self.plan.patches:
            self.progress.secret_files |= patched_with_secrets(self.plan)
            with self.progress.stage(CONFIG_PATCH):
                apply_patches(self.staged, self.plan.patches, values=values.all)
