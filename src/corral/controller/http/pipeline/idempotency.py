"""Idempotency keys: a request that is sent twice takes effect once and is answered the same.

The response is stored in the transaction of the change it belongs to. Responses may hold secrets that
are shown once, so each is encrypted with a key that is derived from the caller's token and the
idempotency key together: reading the store at rest reveals nothing.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from corral.controller.http.messages.call import Caller
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import IDEMPOTENCY
from corral.domain.records import BegunEffect, IdempotencyRecord
from corral.errors import Bug, Code, Rejected
from corral.store.port import ABSENT, Put
from corral.system.entropy import Entropy

LIFE: Final = dt.timedelta(hours=24)

_KEY: Final = re.compile(r"[!-~]{1,255}")
_NONCE_BYTES: Final = 12


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """A request with a key: the id of its stored response, its fingerprint, and the key that encrypts the response."""

    id: str
    fingerprint: str
    sealing_key: bytes

    def find(self, state: ClusterState, now: dt.datetime) -> StoredRecord[IdempotencyRecord] | None:
        """The stored answer to this request, or that it was begun; IDEMPOTENCY_KEY_REUSED when it is another one's."""
        stored = state.idempotency.find(self.id)
        if stored is None or _is_over(stored.record, now):
            return None
        if stored.record.request_sha256 != self.fingerprint:
            raise Rejected(
                Code.IDEMPOTENCY_KEY_REUSED,
                "this Idempotency-Key belongs to another request",
                hint="use a new key for each new request",
                field="Idempotency-Key",
            )
        return stored

    def keep(
        self, *, state: ClusterState, status: int, body: bytes, now: dt.datetime, entropy: Entropy
    ) -> Put:
        """The write that stores a response; it conflicts when another request with this key was stored first."""
        return self._put(state, status=status, body=body, begun=None, now=now, entropy=entropy)

    def begin(self, effect: BegunEffect, *, state: ClusterState, now: dt.datetime, entropy: Entropy) -> Put:
        """The write that stores what this request is about to do. A controller of an earlier version reads it as
        an empty refusal."""
        status = Code.MAY_HAVE_ARRIVED.status
        return self._put(state, status=status, body=b"", begun=effect, now=now, entropy=entropy)

    def _put(
        self,
        state: ClusterState,
        *,
        status: int,
        body: bytes,
        begun: BegunEffect | None,
        now: dt.datetime,
        entropy: Entropy,
    ) -> Put:
        nonce = entropy.secret(_NONCE_BYTES)
        sealed = nonce + AESGCM(self.sealing_key).encrypt(nonce, body, self._context(status))
        record = IdempotencyRecord(
            request_sha256=self.fingerprint,
            status=status,
            body=base64.b64encode(sealed).decode(),
            created_at=now,
            begun=begun,
        )
        stored = state.idempotency.find(self.id)
        replaced = stored is not None and (stored.record.begun is not None or _is_over(stored.record, now))
        return IDEMPOTENCY.put(self.id, record, expect=stored.revision if stored and replaced else ABSENT)

    def open(self, record: IdempotencyRecord) -> bytes:
        """The body of a stored answer."""
        sealed = base64.b64decode(record.body)
        return AESGCM(self.sealing_key).decrypt(
            sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._context(record.status)
        )

    def _context(self, status: int) -> bytes:
        return f"{self.id}:{self.fingerprint}:{status}".encode()


def guard_of(
    key: str | None,
    *,
    caller: Caller,
    method: str,
    path: str,
    query: bytes,
    body: bytes,
    conditions: Sequence[bytes] = (),
) -> Guard | None:
    """The guard of a request with an Idempotency-Key; BAD_REQUEST when the key is malformed."""
    if key is None:
        return None
    if _KEY.fullmatch(key) is None:
        raise Rejected(
            Code.BAD_REQUEST,
            "the Idempotency-Key is malformed",
            hint="use 1 to 255 visible ASCII characters, such as a UUID",
            field="Idempotency-Key",
        )
    if not caller.credential:
        raise Bug("a keyed request needs the caller's credential to seal its answer")
    derivation = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"corral idempotency\0" + key.encode())
    sealing_key = derivation.derive(caller.credential.encode())
    return Guard(
        id=_digest(caller.id.encode(), key.encode()),
        # Keyed: a plain digest of a body with a password could be guessed at, by whoever reads the store.
        fingerprint=_digest(method.encode(), path.encode(), query, body, *conditions, key=sealing_key),
        sealing_key=sealing_key,
    )


def line_guard(id: str | None, *, caller: Caller, instance: str, line: str) -> Guard | None:
    """The guard of a line on a socket that has an id. Its answer is empty, so it is sealed with what is no secret: who
    comes with a ticket has shown no credential."""
    if id is None:
        return None
    return Guard(
        id=_digest(caller.id.encode(), id.encode()),
        fingerprint=_digest(b"console line", instance.encode(), line.encode()),
        sealing_key=hashlib.sha256(b"corral console line\0" + caller.id.encode()).digest(),
    )


def expired(state: ClusterState, *, now: dt.datetime, limit: int) -> list[str]:
    """Ids of expired responses, which no request can get any more, at most `limit`."""
    found: list[str] = []
    for id, stored in state.idempotency.items():
        if len(found) == limit:
            break
        if _is_over(stored.record, now):
            found.append(id)
    return found


def _is_over(record: IdempotencyRecord, now: dt.datetime) -> bool:
    return record.created_at + LIFE <= now


def _digest(*parts: bytes, key: bytes = b"") -> str:
    """A digest in which the borders of the parts count; with a key, of who knows that key alone."""
    framed = b"".join(_framed(parts))
    return hmac.digest(key, framed, "sha256").hex() if key else hashlib.sha256(framed).hexdigest()


def _framed(parts: Iterable[bytes]) -> Iterable[bytes]:
    for part in parts:
        yield len(part).to_bytes(8, "big")
        yield part
