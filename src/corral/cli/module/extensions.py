"""What modules install into instances, as people read it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

from corral.cli.terminal.output import Item

if TYPE_CHECKING:
    from corral.domain.module_manifest import Manifest


def extension_rows(extensions: Iterable[Item]) -> list[tuple[str, str]]:
    """A row for each extension, and one for each of its variants."""
    rows = []
    for each in extensions:
        rivals = ", ".join(each.get("conflicts") or ())
        apart = f"; not together with {rivals}" if rivals else ""
        rows.append(("Extension", f"{each.get('id')} ({each.get('activation')}){apart}"))
        rows += [("", _variant(variant)) for variant in each.get("variants") or ()]
    return rows


def extension_items(manifest: Manifest) -> list[Item]:
    """The extensions of a manifest in the words of the API."""
    from msgspec.structs import asdict

    return [
        {**asdict(each), "variants": [asdict(variant) for variant in each.variants]}
        for each in manifest.extensions
    ]


def _variant(found: Item) -> str:
    platforms = ", ".join(found.get("platforms") or ()) or "any program"
    place = str(found.get("install_path"))
    told = f"  {found.get('id')}: for {platforms} {found.get('version_range')}, as {place}"
    return told + _doubt(str(found.get("file")), place)


def _doubt(file: str, place: str) -> str:
    """A directory is easily given where a file's name belongs."""
    ending = posixpath.splitext(file)[1]
    if ending and not posixpath.splitext(place)[1]:
        return f" (a file of that name, not a directory: is '{place}/{posixpath.basename(file)}' meant?)"
    return ""
