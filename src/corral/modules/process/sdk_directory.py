"""Directory that module processes import our code from: `corral.sdk` and msgspec, nothing else.

`corral` in it is a directory without a file of its own, a namespace: so nothing of Corral but the SDK can
be imported there, however Corral is installed.
"""

from __future__ import annotations

import os
import pathlib

import msgspec

import corral.sdk


def make_view(directory: pathlib.Path) -> pathlib.Path:
    """Create or repair the directory. Readable by every user: a module may run as another one. Blocking."""
    namespace = directory / "corral"
    namespace.mkdir(parents=True, exist_ok=True)
    for made in (directory, namespace):
        made.chmod(0o755)
    sdk, codec = sources()
    _link(namespace / "sdk", sdk)
    _link(directory / "msgspec", codec)
    return directory


def sources() -> tuple[pathlib.Path, pathlib.Path]:
    """Real locations of this host's SDK and msgspec."""
    return _home(corral.sdk.__file__), _home(msgspec.__file__)


def _home(file: str | None) -> pathlib.Path:
    assert file is not None, "a package with a file"
    return pathlib.Path(file).resolve().parent


def _link(place: pathlib.Path, target: pathlib.Path) -> None:
    """Replace the link atomically: a process that imports meanwhile sees the old or the new one."""
    if place.is_symlink() and place.readlink() == target:
        return
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(place)
