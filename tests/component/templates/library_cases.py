"""What the library's tests share: a library, versions of intakes, trees as plain dictionaries."""

from __future__ import annotations

import hashlib
import io
import pathlib
import tarfile
from typing import Any

from corral.controller.templates.archive_import import ImportedTree
from corral.controller.templates.library import TemplateLibrary
from corral.domain.templates import TemplateVersion
from corral.store.port import Store
from corral.system.clock import Clock, SystemClock
from corral.system.controller_config import TemplatesSection


def a_library(
    store: Store, scratch: pathlib.Path, *, clock: Clock | None = None, **config: Any
) -> TemplateLibrary:
    section = TemplatesSection(**config)
    return TemplateLibrary(
        store.blobs, config=section, directory=scratch / "uploads", clock=clock or SystemClock()
    )


def a_version(intake: ImportedTree, *, number: int = 1) -> TemplateVersion:
    return TemplateVersion(
        number=number,
        manifest=intake.digest,
        hash=intake.hash,
        archive_size=intake.archive_size,
        files=intake.files,
        size=intake.size,
        created_at=SystemClock().now(),
    )


async def archive_of(library: TemplateLibrary, intake: ImportedTree, format: str = "tar.gz") -> bytes:
    return b"".join([block async for block in library.export(a_version(intake), format)])


def tree_in(archive: bytes) -> dict[str, tuple[bytes, int]]:
    """Path to content and mode, directories with a `/`."""
    found: dict[str, tuple[bytes, int]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.isdir():
                found[member.name + "/"] = (b"", member.mode)
            else:
                file = tar.extractfile(member)
                assert file is not None
                found[member.name] = (file.read(), member.mode)
    return found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def blobs_in(store: Store) -> set[str]:
    return {stamp.digest for stamp in await store.blobs.blob_stamps(limit=100_000)}
