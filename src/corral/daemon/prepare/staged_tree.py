"""Staged tree of a working directory: layers laid out, first-run results, variables, patches. Blocking, for one thread.

All of it is one job in one thread: on a busy node each switch to a thread and back costs more than the work on a small
template.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import stat
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from corral.daemon.config_files.patches import apply_patches, merged
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import FileCopier, stripped_by_umask
from corral.daemon.prepare.ingredients import Ingredients
from corral.daemon.prepare.layout import Merge, TreeLayout
from corral.daemon.prepare.small_contents import LARGEST_BYTES, SmallContents
from corral.daemon.prepare.substitution import Rendered, strictly, substitute_files
from corral.daemon.workload.run_secrets import patched_with_secrets
from corral.daemon.workload.start_stages import (
    BOOTSTRAP_WARMUP,
    CONFIG_PATCH,
    TEMPLATE_APPLY,
    VARIABLE_SUBSTITUTION,
    StartProgress,
)
from corral.daemon.workload.variable_values import Values
from corral.domain.file_paths import globs
from corral.domain.groups.plans import Plan
from corral.domain.templates import TemplateFile

THREADS: Final = 4
_DIRECTORY_MODE: Final = 0o750
_FEW: Final = 64
"""Up to so many files a second thread costs more than it gains."""
_LARGE: Final = 4 * 1024 * 1024

Content = Callable[[str], pathlib.Path]


def materialise(
    layout: TreeLayout,
    target: pathlib.Path,
    *,
    content: Content,
    copier: FileCopier,
    abort: Abort,
    small: SmallContents,
    owner: tuple[int, int] | None = None,
    threads: int = THREADS,
) -> None:
    """Lay all files into `target`, an empty directory. OSError when the disk refuses; the caller removes what was
    written by then."""
    root = str(target)
    for path in layout.directories:
        make_directory(f"{root}/{path}", owner)
    batches = split(layout.copies, threads)

    def lay(files: Sequence[TemplateFile]) -> None:
        for file in files:
            abort.check()
            source, path = content(file.digest), f"{root}/{file.path}"
            shared = file.size > LARGEST_BYTES or copier.shares(file.mode, read_only=file.read_only)
            if not shared and (body := small.read(file.digest, source)) is not None:
                copier.write(body, path, mode=file.mode)
                continue
            abort.check()
            copier.place(
                str(source),
                path,
                mode=file.mode,
                read_only=file.read_only,
                abort=abort,
                size=file.size,
            )

    if len(batches) == 1:
        lay(batches[0])
    elif batches:
        with concurrent.futures.ThreadPoolExecutor(len(batches), thread_name_prefix="lay") as pool:
            laying = [pool.submit(lay, batch) for batch in batches]
            done, _ = concurrent.futures.wait(laying, return_when=concurrent.futures.FIRST_EXCEPTION)
            failed = next((error for each in done if (error := each.exception())), None)
            if failed is not None:
                abort.set()  # the other threads need not go on
                raise failed
    for merge in layout.merges:
        abort.check()
        _merge(merge, root, content, owner)


def split(files: Sequence[TemplateFile], threads: int) -> list[list[TemplateFile]]:
    """Batches of about the same work; large files are spread first."""
    if len(files) <= _FEW and sum(file.size for file in files) <= _LARGE:
        return [list(files)] if files else []
    batches: list[list[TemplateFile]] = [[] for _ in range(max(1, threads))]
    loads = [0] * len(batches)
    for file in sorted(files, key=lambda file: file.size, reverse=True):
        place = loads.index(min(loads))
        batches[place].append(file)
        loads[place] += file.size + 32 * 1024  # opening and closing costs about as much as this
    return [batch for batch in batches if batch]


def make_directory(path: str | pathlib.Path, owner: tuple[int, int] | None) -> None:
    os.mkdir(path, _DIRECTORY_MODE)  # noqa: PTH102 - often
    if _DIRECTORY_MODE & stripped_by_umask():
        os.chmod(path, _DIRECTORY_MODE)  # noqa: PTH101
    if owner is not None:
        os.chown(path, *owner)


def _merge(merge: Merge, root: str, content: Content, owner: tuple[int, int] | None) -> None:
    body = content(merge.parts[0].digest).read_bytes()
    for part in merge.parts[1:]:
        body = merged(body, content(part.digest).read_bytes(), name=merge.path)
    write_new(f"{root}/{merge.path}", body, mode=merge.mode, owner=owner)


def write_new(path: str, body: bytes, *, mode: int, owner: tuple[int, int] | None) -> None:
    """A file that does not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)


def lay_beneath(
    source: pathlib.Path,
    target: pathlib.Path,
    copier: FileCopier,
    owner: tuple[int, int] | None,
    abort: Abort,
) -> None:
    """Copy the regular files and directories of `source` that `target` lacks. Blocks."""
    for directory, names, files in os.walk(source):
        relative = os.path.relpath(directory, source)
        here = target if relative == "." else target / relative
        names[:] = [name for name in names if not pathlib.Path(directory, name).is_symlink()]
        for name in list(names):
            place = here / name
            if not os.path.lexists(place):
                make_directory(place, owner)
            elif not place.is_dir():
                names.remove(name)  # a template has a file there
        for name in files:
            abort.check()
            found = os.lstat(f"{directory}/{name}")
            if stat.S_ISREG(found.st_mode) and not os.path.lexists(here / name):
                mode = 0o755 if found.st_mode & 0o100 else 0o644
                copier.place(f"{directory}/{name}", str(here / name), mode=mode, read_only=False, abort=abort)


_log = structlog.get_logger("corral.daemon.prepare")


class TreeFill(msgspec.Struct, frozen=True, kw_only=True):
    """One directory being built. Each method is a stage, or a part of one."""

    plan: Plan
    staged: pathlib.Path
    owner: tuple[int, int] | None
    clone: bool
    link: bool
    """Read-only files may be links into the cache: the user of the workload cannot write to them."""
    progress: StartProgress
    small: SmallContents

    def lay(self, layout: TreeLayout, found: Ingredients, abort: Abort) -> None:
        """Lay the files of `layout` into a new directory."""
        with self.progress.stage(TEMPLATE_APPLY):
            make_directory(self.staged, self.owner)
            materialise(
                layout,
                self.staged,
                content=found.content,
                copier=FileCopier(clone=self.clone, link=self.link, owner=self.owner),
                abort=abort,
                small=self.small,
                owner=self.owner,
            )

    def lay_first_run(self, tree: pathlib.Path | None, abort: Abort) -> None:
        """Add the files that a first run of the program created, where the path is free."""
        if tree is None:
            return
        with self.progress.stage(BOOTSTRAP_WARMUP):
            copier = FileCopier(clone=self.clone, link=False, owner=self.owner)
            lay_beneath(tree, self.staged, copier, self.owner, abort)

    def render(self, texts: frozenset[str], values: Values, abort: Abort) -> Rendered:
        """Replace variables in those of these files that the globs match."""
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
                _log.warning("variable_lookup.failed", group=self.plan.group, where=where)
            return rendered

    def patch(self, values: Values) -> None:
        if self.plan.patches:
            self.progress.secret_files |= patched_with_secrets(self.plan)
            with self.progress.stage(CONFIG_PATCH):
                apply_patches(self.staged, self.plan.patches, values=values.all)
