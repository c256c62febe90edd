"""Credentials of commands that run for a caller: in memory, for as long as the command runs.

One stands for its caller as that is at each request: what a token or session may no longer do, its command may not
either. It names the address that the caller came from, and is good at the private socket of this process only.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.domain.ids import CallerId, NodeId
from corral.system.entropy import Entropy

PREFIX: Final = "corral_cmd-"
_BYTES: Final = 32


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a command runs, and where that one is."""

    caller: CallerId
    address: str
    node: NodeId | None = None
    """The command may do what its caller may on this node, and with the instances there, and nothing else."""


def is_delegated(credential: str) -> bool:
    return credential.startswith(PREFIX)


class Delegations:
    """Those of one term. Nothing of them is stored."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._known: dict[bytes, Delegation] = {}

    def __len__(self) -> int:
        return len(self._known)

    @contextlib.contextmanager
    def opened(self, delegation: Delegation) -> Iterator[str]:
        """A credential that is valid within."""
        credential = PREFIX + self._entropy.secret(_BYTES).hex()
        digest = _digest(credential)
        self._known[digest] = delegation
        try:
            yield credential
        finally:
            del self._known[digest]

    def find(self, credential: str) -> Delegation | None:
        return self._known.get(_digest(credential))


def _digest(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()
