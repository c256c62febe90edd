"""How many entries a module's archive may have, refused before Python's reader takes them into memory."""

from __future__ import annotations

from typing import IO, Final

from corral.archives import zip_end
from corral.modules.archive_refusals import damaged, too_large

_DIRECTORY_BYTES: Final = 64 * 1024 * 1024


def count_entries(file: IO[bytes], most: int) -> None:
    """Refuse a directory that is too long, damaged, or followed by something else."""
    try:
        zip_end.count_entries(file, most=most, most_bytes=_DIRECTORY_BYTES, sealed=True)
    except zip_end.ZipDamaged as error:
        raise damaged(str(error)) from error
    except zip_end.ZipDirectoryTooLong as error:
        what = "the directory of the module's archive is too long"
        raise too_large(what, f"{_DIRECTORY_BYTES} bytes") from error
    except zip_end.ZipTooManyEntries as error:
        raise too_large("the module's archive has too many entries", f"{most} entries") from error
