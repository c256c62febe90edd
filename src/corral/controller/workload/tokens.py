"""The token of a run: it authenticates a workload for reports about itself, and for nothing else.

A token is `cw1.PAYLOAD.MAC`. It is not stored anywhere: the payload names the instance, the start it belongs
to and its expiry, and the MAC over it is made with a key that every controller of the cluster derives from
the cluster key. It is valid while its start lives. Restarts by the node belong to the start and keep its
token, because the node has no other to give them.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import live
from corral.domain.ids import Incarnation, InstanceId, same_start
from corral.errors import Code, Rejected
from corral.pki.keys import ClusterKey
from corral.system.clock import Clock

PREFIX: Final = "cw1"
MAX_LENGTH: Final = 1024
_RENEW: Final = "renew it with POST /api/v1/workload/token; that takes it also now, while its run lives"
_WHERE: Final = "use the value of CORRAL_INSTANCE_TOKEN, or of the last renewal"


class WorkloadRun(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated run: an instance in one of its starts."""

    instance: InstanceId
    incarnation: Incarnation


class _TokenClaims(msgspec.Struct, frozen=True, array_like=True):
    instance: str
    incarnation: int
    expires: int
    """Expiry in seconds of Unix time."""


def workload_key(state: ClusterState, path: pathlib.Path) -> bytes:
    """The key of this cluster's workload tokens; the same on each of its controllers."""
    cluster_key = ClusterKey.require(path)
    return cluster_key.derive(f"workload tokens of {state.identity.id}")


class WorkloadTokens:
    """Issues and verifies tokens. `key` is called once, at the first use."""

    def __init__(
        self, *, key: Callable[[], bytes], state: ClusterState, clock: Clock, life: dt.timedelta
    ) -> None:
        self._source = key
        self._key: bytes | None = None
        self._state = state
        self._clock = clock
        self._life = life

    def mint(self, id: InstanceId, incarnation: Incarnation) -> str:
        """A token for this run and those its node starts in its place."""
        return self.minted(id, incarnation)[0]

    def minted(self, id: InstanceId, incarnation: Incarnation) -> tuple[str, dt.datetime]:
        """A token, and its expiry without renewal."""
        expires = (self._clock.now() + self._life).replace(microsecond=0)
        payload = _TokenClaims(id, incarnation, int(expires.timestamp()))
        body = f"{PREFIX}.{_encode(msgspec.json.encode(payload))}"
        return f"{body}.{_encode(self._code(body))}", expires

    def verify(self, text: str, *, late: bool = False) -> WorkloadRun:
        """The run of this token; WORKLOAD_TOKEN_INVALID with the reason. With `late` an expired one is
        accepted as long as its run lives."""
        payload = self._genuine(text)
        run = WorkloadRun(instance=InstanceId(payload.instance), incarnation=Incarnation(payload.incarnation))
        self._require_life(run)
        if not late and self._clock.now().timestamp() >= payload.expires:
            ended = dt.datetime.fromtimestamp(payload.expires, dt.UTC).isoformat()
            raise _refused(f"this token of instance '{run.instance}' expired at {ended}", _RENEW)
        return run

    def _genuine(self, text: str) -> _TokenClaims:
        """The content of the token, if its MAC is valid; nothing in it is read before that check."""
        body, dot, code = text.rpartition(".")
        if not dot or not body.startswith(f"{PREFIX}.") or len(text) > MAX_LENGTH:
            raise _refused("this is not the token of an instance", _WHERE)
        try:
            given = _decode(code)
        except ValueError:
            given = b""
        if not hmac.compare_digest(given, self._code(body)):
            raise _refused("this token was not made by this cluster, or was changed", _WHERE)
        try:
            return msgspec.json.decode(_decode(body.removeprefix(f"{PREFIX}.")), type=_TokenClaims)
        except (ValueError, msgspec.DecodeError):
            raise _refused("this token cannot be read by this version", _WHERE) from None

    def _require_life(self, run: WorkloadRun) -> None:
        stored = self._state.instances.find(run.instance)
        if stored is None:
            raise _refused(f"instance '{run.instance}' does not exist any more", None)
        record = stored.record
        if not same_start(record.incarnation, run.incarnation):
            raise _refused(
                f"this token belongs to an earlier run of instance '{run.instance}'",
                "only the present run may speak for it",
            )
        if not live(record.state):
            raise _refused(f"instance '{run.instance}' is {record.state}: its token ended with its run", None)

    def _code(self, body: str) -> bytes:
        if self._key is None:
            self._key = self._source()
        return hmac.digest(self._key, body.encode("utf-8", "replace"), hashlib.sha256)


def _refused(message: str, hint: str | None) -> Rejected:
    return Rejected(Code.WORKLOAD_TOKEN_INVALID, message, hint=hint)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Strict decoding: one token has one text."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError) as error:
        raise ValueError(str(error)) from None
    if _encode(data) != text:
        raise ValueError("not canonical")
    return data
