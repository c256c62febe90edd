"""Secrets of a run: the files they were filled into, a salted digest of each value, by which a later daemon detects
whether it still knows them all, and the mask that keeps the values out of messages and saves.

These files are excluded when a working directory is saved. All other files are searched for the values that the node
knows: a workload may have copied them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import pathlib
import secrets
from collections.abc import Iterable, Mapping
from typing import IO, Final, cast

import msgspec

from corral.daemon.node.durable_files import store
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.variable_values import NodeFacts, Secrets, secrets_now, secrets_of_process
from corral.domain.groups.config_patches import value_text
from corral.domain.groups.plans import Plan
from corral.domain.groups.secret_masks import SecretMask, names_within, secret_names
from corral.errors import Code, CorralError, Rejected
from corral.sdk.runtime import RunHandle
from corral.system.files import read_versioned

_FILE: Final = "secret-files.json"
_FORMAT: Final = "corral-secret-files"
_VERSION: Final = 1
_SHORTEST: Final = 4
"""Values with fewer bytes occur in nearly every file."""
_LARGEST: Final = 64 * 1024 * 1024
"""Largest file in which values are replaced by names."""


class RunSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of one run, without any value."""

    paths: tuple[str, ...] = ()
    """Below its working directory: the files that secrets were filled into."""
    salt: str = ""
    digests: dict[str, str] = {}
    """By the name of the variable."""

    def unknown(self, *known: Mapping[str, str]) -> frozenset[str]:
        """The variables whose value in this run is none of those in `known`."""
        return frozenset(
            name
            for name, digest in self.digests.items()
            if not any(
                hmac.compare_digest(digest, _digest(values[name], self.salt))
                for values in known
                if name in values
            )
        )


def _digest(value: str, salt: str) -> str:
    return hashlib.blake2b(value.encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def patched_with_secrets(plan: Plan) -> frozenset[str]:
    """The files into which patches put secrets."""
    names = secret_names(plan.variable_types)
    return frozenset(
        patch.file for patch in plan.patches if names and names_within(value_text(patch.value), names)
    )


def write_run_secrets(
    run_directory: pathlib.Path, paths: Iterable[str], values: Mapping[str, str], *, earlier: bool
) -> None:
    """Record the files that this start filled and the values it used; with `earlier` also the files of the runs before
    it, whose directory it continues. Blocks; Retryable when the disk refuses."""
    found = set(paths)
    if earlier and run_directory.parent.is_dir():
        for beside in run_directory.parent.iterdir():
            found.update(read_run_secrets(beside).paths)
    salt = secrets.token_hex(16)
    run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    store(
        run_directory / _FILE,
        RunSecrets(
            paths=tuple(sorted(found)),
            salt=salt,
            digests={name: _digest(value, salt) for name, value in values.items()},
        ),
        name=_FORMAT,
        version=_VERSION,
    )


def read_run_secrets(run_directory: pathlib.Path) -> RunSecrets:
    try:
        found = read_versioned(run_directory / _FILE, RunSecrets, name=_FORMAT, version=_VERSION)
    except NotADirectoryError:
        return RunSecrets()
    return found if found is not None else RunSecrets()


class SecretGuard:
    """Checks each file that is saved. With `put_names` the values of secrets become `%NAME%` again; without it, and
    where that is impossible, SECRET_EXPOSED with the path."""

    def __init__(self, mask: SecretMask, filled: frozenset[str], *, put_names: bool) -> None:
        self._filled = filled
        self._put_names = put_names
        self._values = [
            (value, name)
            for value, name in (
                (value.encode(), name) for value, name in mask.hidden if value not in mask.vague
            )
            if len(value) >= _SHORTEST
        ]

    def content(self, path: str, file: IO[bytes], size: int) -> tuple[IO[bytes], int]:
        """The content to save of this file, and its size. Reading it may raise, too."""
        if path in self._filled and not self._put_names:
            raise _exposed(path, "a secret was filled into it")
        if self._put_names and size <= _LARGEST and self._values:
            body = file.read(size)
            named = body
            for value, name in self._values:
                named = named.replace(value, name.encode())
            if path in self._filled and named == body:
                raise _stale(path)
            return io.BytesIO(named), len(named)
        if path in self._filled:
            raise _stale(path)
        return (cast(IO[bytes], _Searched(path, file, self._values)) if self._values else file), size


class _Searched(io.RawIOBase):
    """A file whose reads raise once a secret was found in it."""

    def __init__(self, path: str, file: IO[bytes], values: list[tuple[bytes, str]]) -> None:
        self._path = path
        self._file = file
        self._values = values
        self._before = b""
        self._overlap = max(len(value) for value, _ in values) - 1

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        text = self._before + data
        for value, name in self._values:
            if value in text:
                raise _exposed(self._path, f"it holds the secret {name}")
        self._before = text[-self._overlap :]
        return data


def _exposed(path: str, why: str) -> CorralError:
    return Rejected(
        Code.SECRET_EXPOSED,
        f"'{path}' is not saved: {why}",
        hint="leave it out of the paths, or have the names put in place of the values (--secret-names)",
        field="paths",
    )


def _stale(path: str) -> CorralError:
    return Rejected(
        Code.SECRET_EXPOSED,
        f"'{path}' is not saved: a secret was filled into it, and its present value is not found there",
        hint="leave it out of the paths",
        field="paths",
    )


class RunMask:
    """The mask of one run. Its methods may be called by several threads."""

    def __init__(
        self, order: StartOrder, run_directory: pathlib.Path, *, node: NodeFacts, secrets: Secrets
    ) -> None:
        self._order = order
        self._run_directory = run_directory
        self._node = node
        self._secrets = secrets
        self._names = secret_names(order.plan.variable_types) if order.plan else frozenset()
        self._mask: SecretMask | None = None
        """While the run lives: the secrets it received. For a run of another daemon: those in its environment and those
        it would receive now."""

    @property
    def needed(self) -> bool:
        """Whether the run may have received any secret."""
        return bool(self._names)

    def give(self, values: Mapping[str, str]) -> None:
        """Record the secrets that the run is started with."""
        self._mask = SecretMask(values)

    async def learn(self, handle: RunHandle | None) -> None:
        """Find the secrets of a run that a previous daemon started; None: no process of it lives."""
        if self.needed:
            await asyncio.to_thread(self._learn, handle.pid if handle is not None else 0)

    def _learn(self, pid: int) -> SecretMask:
        """The current values of its secrets, and those its process has if it lives (0: it does not). Blocks for a
        moment."""
        kept = self._mask
        if kept is not None and not kept.unknown:
            return kept
        known = [secrets_now(self._order, self._node, self._secrets)]
        if pid:
            known += secrets_of_process(self._order, self._node, pid)
        try:
            unknown = read_run_secrets(self._run_directory).unknown(*known)
        except (CorralError, OSError):  # damaged: nothing is known for certain
            unknown = self._names
        mask = SecretMask(unknown=unknown)
        for values in known:
            mask |= SecretMask(values)
        self._mask = mask
        return mask

    def known(self) -> SecretMask:
        """The known secrets, looked up if that was not done yet. Blocks for a moment."""
        mask = self._mask  # another thread may clear it meanwhile
        return mask if mask is not None else self._learn(0)

    def hide(self, text: str) -> str:
        """A text about this run as it may leave the node: without the values the run received. Never blocks."""
        mask = self._mask
        return mask(text) if mask is not None else text

    def guard(self, *, put_names: bool) -> SecretGuard:
        """A guard that keeps its secrets out of saved files. Blocks for a moment."""
        mask = self.known() | SecretMask(secrets_now(self._order, self._node, self._secrets))
        filled = frozenset(read_run_secrets(self._run_directory).paths)
        return SecretGuard(mask, filled, put_names=put_names)

    def forget(self) -> None:
        """The run has ended, and all reports about it are sent."""
        self._mask = None
