"""Randomness: ids, secrets and jitter."""

from __future__ import annotations

import base64
import random
import secrets
from typing import Protocol


class Entropy(Protocol):
    def secret(self, size: int) -> bytes:
        """Unguessable bytes."""

    def fraction(self) -> float:
        """A number in [0, 1), for jitter and shuffles, not for secrets."""


class SystemEntropy:
    """The randomness of this machine."""

    def secret(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def fraction(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret


def new_id(prefix: str, entropy: Entropy) -> str:
    """A short unguessable id such as `tok-k3v7q2m6x5pa`."""
    return f"{prefix}-{base64.b32encode(entropy.secret(8)).decode().rstrip('=').lower()[:12]}"
