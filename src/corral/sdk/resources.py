"""Resources: files in a module's own archive."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from corral.sdk.errors import SdkError


class ResourceMissing(SdkError):
    """The archive has no such file.

    ```python
    except ResourceMissing:
        template = DEFAULT
    ```
    """


class Resources:
    """`ctx.resources`. `importlib.resources` works as well.

    ```python
    template = ctx.resources.read_text("templates/mail.txt")
    ```
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, name: str) -> Path:
        """Path of a file of the archive, read-only. Raises ResourceMissing, also for a path outside of it."""
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise ResourceMissing(f"'{name}' is no path within the archive")
        found = self._root.joinpath(relative)
        if not found.is_file():
            raise ResourceMissing(f"the archive holds no file '{name}'")
        return found

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def read_text(self, name: str) -> str:
        return self.path(name).read_text("utf-8")
