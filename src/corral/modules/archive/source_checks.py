"""Syntax checks of a module's own sources without running them: for authors, before an archive is sent."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from typing import Final

from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected

VENDOR: Final = "vendor/"


def check_sources(manifest: Manifest, files: Collection[str], read: Callable[[str], bytes]) -> None:
    """ARCHIVE_INVALID for the first file that Python cannot parse, and for an entry point whose class does
    not exist. Third-party code below `vendor/` is not checked. Blocking; nothing is run."""
    for path in sorted(files):
        if path.endswith(".py") and not path.startswith(VENDOR):
            _parsed(path, read)
    for host in manifest.hosts:
        backend = manifest.backend_on(host)
        if backend is None:
            continue
        module, _, name = backend.entrypoint.partition(":")
        stem = module.replace(".", "/")
        path = next((each for each in (f"{stem}/__init__.py", f"{stem}.py") if each in files), "")
        if path and not _may_have(_parsed(path, read), name.partition(".")[0]):
            raise _refused(f"{path} has no class '{name}', which backend.{host}.entrypoint names")


def _parsed(path: str, read: Callable[[str], bytes]) -> ast.Module:
    try:
        return ast.parse(read(path), path)
    except SyntaxError as error:
        raise _refused(f"{path}:{error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused(f"{path}: {type(error).__name__} {error}") from None


def _may_have(tree: ast.Module, name: str) -> bool:
    """Is the name bound somewhere in a module, or could it be in a way that only running it shows?"""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                if found in (name, "__getattr__"):
                    return True
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                if any((each.asname or each.name.partition(".")[0]) in (name, "*") for each in aliases):
                    return True
            case ast.Name(id=found, ctx=ast.Store()) if found == name:
                return True
            case ast.Name(id="globals" | "exec" | "setattr"):
                return True
    return False


def _refused(why: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_INVALID,
        f"the module could not be loaded: {why}",
        hint="nothing of it was run to find that; correct it and build it again",
    )
