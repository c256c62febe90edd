"""Secrets of workloads, looked up on the node at the last moment and kept nowhere.

A reference names a file beneath `DATA/secrets/`, or a variable of the daemon's environment whose name
begins with CORRAL_SECRET_. No error ever shows a value.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Final

from corral.domain.file_paths import check_path
from corral.domain.variable_checks import check_secret_reference
from corral.errors import Code, CorralError, Rejected
from corral.system.log_mask import HIDDEN_VALUES
from corral.system.trees.entries import open_beneath, open_tree

_MAX_BYTES: Final = 64 * 1024


class Secrets:
    """Of one node. Reading blocks for a moment: it belongs into a thread."""

    def __init__(self, directory: pathlib.Path, environ: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._environ = os.environ if environ is None else environ

    def value(self, reference: str, *, name: str) -> str:
        """SECRET_UNAVAILABLE says which secret of which variable is missing, and where it should be. From then
        on no log of this process shows it."""
        found = self._look_up(reference, name)
        HIDDEN_VALUES.add(found)
        return found

    def _look_up(self, reference: str, name: str) -> str:
        found = check_secret_reference(reference, field=f"variables/{name}")
        if found.kind == "env":
            if found.name not in self._environ:
                raise _unavailable(name, f"the daemon has no {found.name} in its environment", "set it there")
            return self._environ[found.name]
        return self._from_file(found.name, name)

    def _from_file(self, path: str, name: str) -> str:
        where = f"{self._directory}/{path}"
        try:
            checked = check_path(path, field=f"variables/{name}")
            with open_tree(self._directory) as root, open_beneath(root, checked) as descriptor:
                raw = os.read(descriptor, _MAX_BYTES + 1)
            if len(raw) > _MAX_BYTES:
                raise _unavailable(name, f"{where} is longer than 64 KiB", "secrets are short")
            return raw.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            why = f"{where} cannot be read: {error.strerror or error}"
            raise _unavailable(name, why, "put the secret there, readable for the daemon") from error
        except UnicodeDecodeError:
            raise _unavailable(name, f"{where} is no UTF-8", "store text there") from None
        except CorralError as error:
            if error.code is Code.SECRET_UNAVAILABLE:
                raise
            raise _unavailable(name, str(error), "name a file beneath the node's secrets/") from error


def _unavailable(name: str, why: str, hint: str) -> Rejected:
    return Rejected(
        Code.SECRET_UNAVAILABLE, f"the secret variable '{name}' has no value here: {why}", hint=hint
    )
