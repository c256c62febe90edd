"""Changes of a tree, manifest in, manifest out; each result is checked like an archive's."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from corral.controller.templates.tree_builder import TreeLimits, filled_directories
from corral.domain.templates import Manifest, TemplateFile
from corral.errors import Code, Rejected, nearest

_GUESSES = 500


def find_file(manifest: Manifest, path: str) -> TemplateFile:
    """NOT_FOUND with the nearest path there is."""
    place = bisect.bisect_left(manifest.files, path, key=lambda file: file.path)
    if place < len(manifest.files) and manifest.files[place].path == path:
        return manifest.files[place]
    raise _no_such_file(manifest, path)


def put_file(manifest: Manifest, file: TemplateFile, limits: TreeLimits) -> Manifest:
    return overlay(manifest, Manifest(files=(file,)), limits)


def remove_path(manifest: Manifest, path: str) -> Manifest:
    """Without a file or an empty directory. The directory it was in goes when it is empty by that."""
    files = tuple(file for file in manifest.files if file.path != path)
    directories = tuple(each for each in manifest.directories if each != path)
    if len(files) + len(directories) == len(manifest.files) + len(manifest.directories):
        raise _no_such_file(manifest, path)
    return Manifest(files=files, directories=directories)


def overlay(base: Manifest, upper: Manifest, limits: TreeLimits) -> Manifest:
    """Both trees, the upper one's files in place of the lower one's of the same path."""
    files = {file.path: file for file in (*base.files, *upper.files)}
    directories = {*base.directories, *upper.directories}
    filled = filled_directories((*files, *directories))
    for path in files.keys() & (filled | directories):
        raise Rejected(
            Code.PATH_REFUSED,
            f"{path!r} would be a file and a directory",
            hint="remove the one before you put the other",
            field="path",
        )
    _check_limits(files.values(), len(filled | directories), limits)
    return Manifest(
        files=tuple(files[path] for path in sorted(files)), directories=tuple(sorted(directories - filled))
    )


def _check_limits(files: Iterable[TemplateFile], directories: int, limits: TreeLimits) -> None:
    sizes = [file.size for file in files]
    if sum(sizes) > limits.max_bytes or max(len(sizes), directories) > limits.max_files:
        raise Rejected(
            Code.ARCHIVE_TOO_LARGE,
            f"the tree would have {len(sizes)} files with {sum(sizes)} bytes; "
            f"the limit is {limits.max_files} files and {limits.max_bytes} bytes",
            hint="make it smaller, or raise templates.max_bytes or templates.max_files",
        )


def _no_such_file(manifest: Manifest, path: str) -> Rejected:
    guess = nearest(path[:200], (file.path for file in manifest.files[:_GUESSES]))
    return Rejected(
        Code.NOT_FOUND,
        f"there is no file {path[:200]!r} in this version",
        hint=f"did you mean '{guess}'?" if guess else "'corral template files NAME' lists them",
        field="path",
    )
