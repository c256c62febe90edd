"""Deleting what a workload left, whatever that is.

Directories may be nested deeper than any recursion goes, longer than any path may be, or closed even to
their owner. What the quick way leaves is taken apart: each directory moves to the top before it is emptied.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable
from typing import Final

_OPEN: Final = 0o700


def remove(path: pathlib.Path, fresh: Callable[[], pathlib.Path]) -> str:
    """Delete it; `fresh` gives unused names beside it. Returns why something of it is left, or nothing.
    Nobody else may write to it any more. Blocks; interrupted, what it took apart lies beside it."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return ""
        shutil.rmtree(path)
    except (OSError, RecursionError):
        return _taken_apart(path, fresh)
    return ""


def _taken_apart(top: pathlib.Path, fresh: Callable[[], pathlib.Path]) -> str:
    failed: list[str] = []
    waiting = [top]
    while waiting:
        here = waiting.pop()
        try:
            here.chmod(_OPEN)
            found = list(here.iterdir())
        except FileNotFoundError:
            continue  # somebody else was faster
        except OSError as error:
            failed.append(f"{here}: {error.strerror or error}")
            continue
        for entry in found:
            try:
                if entry.is_dir() and not entry.is_symlink():
                    entry.chmod(_OPEN)  # a directory that is closed cannot be moved, either
                    waiting.append(entry.rename(fresh()))
                else:
                    entry.unlink()
            except OSError as error:
                failed.append(f"{entry}: {error.strerror or error}")
        try:
            here.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            failed.append(f"{here}: {error.strerror or error}")
    return failed[0] if failed else ""
