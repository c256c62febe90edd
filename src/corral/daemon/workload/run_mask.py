"""The values of one run's secrets, kept out of what is said and saved about it."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Mapping

from corral.daemon.workload.secret_files import SecretGuard, read_run_secrets
from corral.daemon.workload.secrets import Secrets
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.variable_values import NodeFacts, secrets_now, secrets_of_process
from corral.domain.secret_masks import SecretMask, secret_names
from corral.errors import CorralError
from corral.sdk.runtime import RunHandle


class RunMask:
    """Of one run. Its methods may be called by several threads."""

    def __init__(
        self, order: StartOrder, run_directory: pathlib.Path, *, node: NodeFacts, secrets: Secrets
    ) -> None:
        self._order = order
        self._run_directory = run_directory
        self._node = node
        self._secrets = secrets
        self._names = secret_names(order.plan.variable_types) if order.plan else frozenset()
        self._mask: SecretMask | None = None
        """While it lives: what it was given. Of a run of another daemon, what its environment holds and what it would
        be given now."""

    @property
    def needed(self) -> bool:
        """Whether it may have been given any secret."""
        return bool(self._names)

    def give(self, values: Mapping[str, str]) -> None:
        """It is started with these."""
        self._mask = SecretMask(values)

    async def learn(self, handle: RunHandle | None) -> None:
        """Of a run that a daemon before us started; None: nothing of it lives."""
        if self.needed:
            await asyncio.to_thread(self._learn, handle.pid if handle is not None else 0)

    def _learn(self, pid: int) -> SecretMask:
        """As its secrets are now, and as its process has them if it lives (0: it does not). Blocks for a moment."""
        kept = self._mask
        if kept is not None and not kept.unknown:
            return kept
        known = [secrets_now(self._order, self._node, self._secrets)]
        if pid:
            known += secrets_of_process(self._order, self._node, pid)
        try:
            unknown = read_run_secrets(self._run_directory).unknown(*known)
        except (CorralError, OSError):  # damaged: nothing is certain
            unknown = self._names
        mask = SecretMask(unknown=unknown)
        for values in known:
            mask |= SecretMask(values)
        self._mask = mask
        return mask

    def known(self) -> SecretMask:
        """What is known of its secrets, looked up where nothing is yet. Blocks for a moment."""
        mask = self._mask  # it may be forgotten by another thread meanwhile
        return mask if mask is not None else self._learn(0)

    def hide(self, text: str) -> str:
        """A text about this run as it may leave the node: without the values it was given. Never blocks."""
        mask = self._mask
        return mask(text) if mask is not None else text

    def guard(self, *, put_names: bool) -> SecretGuard:
        """Keeps its secrets out of what is saved of its files. Blocks for a moment."""
        mask = self.known() | SecretMask(secrets_now(self._order, self._node, self._secrets))
        filled = frozenset(read_run_secrets(self._run_directory).paths)
        return SecretGuard(mask, filled, put_names=put_names)

    def forget(self) -> None:
        """The run has ended, and everything about it is told."""
        self._mask = None
