"""Says, when an import fails, what a module may import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_IMPORT: Final = "_find_and_load_unlocked"
_BOOTSTRAP: Final = "<frozen importlib._bootstrap>"


class ImportGuard:
    """The last of `sys.meta_path`: whoever gets here was not found by anybody else. It hides nothing; what
    is not on the module's path cannot be found anyway."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path[_behind(self) :]:  # a package may have added its own after us
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        ours = name.partition(".")[0] == "corral"
        # Within a package only the package's author knows what there should be; Python's own message is
        # the right one then.
        if not _is_import() or not (path is None or ours):
            return None
        raise ModuleNotFoundError(_message(name, ours=ours), name=name)


def _behind(guard: ImportGuard) -> int:
    return next(number for number, finder in enumerate(sys.meta_path, 1) if finder is guard)


def _is_import() -> bool:
    """Whether a real import is under way. `importlib.util.find_spec("numpy")` also comes here, to learn
    whether there is such a module, and expects None: packages use it to choose what they do.

    Both go through `importlib._bootstrap._find_spec`, which is our caller; its own caller is
    `_find_and_load_unlocked` for every import (the statement, `__import__`, `import_module`) and somebody
    else for a mere question."""
    try:
        asker = sys._getframe(3)  # this function, find_spec above, _find_spec, its caller
    except ValueError:
        return False
    return asker.f_code.co_name == _IMPORT and asker.f_code.co_filename == _BOOTSTRAP


def _message(name: str, *, ours: bool) -> str:
    what = f"'{name}' is not part of what a module may import"
    if ours:
        return (
            f"{what}: of Corral it is corral.sdk alone; what you need from the host is in the ModuleContext"
        )
    return (
        f"{what}: the standard library, corral.sdk (with msgspec), the packages of its own archive, and those "
        f"beneath its vendor/; put '{name.partition('.')[0]}' there"
    )
