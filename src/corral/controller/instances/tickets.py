"""The ticket of a start: by it a node proves that this cluster told it to run something.

It goes out with the order, is kept by the node with every run of that start, and comes back where a record
may be missing. A ticket is `ct1.SERIAL.PLAN.MAC`; the code is over the node, the instance, its group and the
number of the start as well, so that it is of no use for any other. The serial counts the starts of one node,
and the last one is stored with each start: a ticket above it can only be of a start that a store which was
put back has forgotten, one that is not above it was used before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import start_number
from corral.domain.instance_records import InstanceRecord
from corral.errors import Code, Rejected
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey

_PREFIX: Final = "ct1"
_MAX_LENGTH: Final = 256
_PURPOSE: Final = "tickets of starts"


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What a genuine ticket says beyond what it was held against."""

    serial: int
    plan_hash: str


def ticket_keys(state: ClusterState, path: pathlib.Path) -> tuple[bytes, ...]:
    """The key that tickets are made with, then older ones that still hold. They come from the authorities that
    lie sealed in the store, so that they are the same after a restore and after a change of the cluster key."""
    cluster_key = ClusterKey.load(path)
    if cluster_key is None:
        raise Rejected(
            Code.FORMAT_INVALID,
            f"there is no cluster key at {path}",
            hint="copy the cluster key file from another controller of this cluster",
        )
    record = state.authorities
    return tuple(
        Authority.derived_key(sealed, cluster_key=cluster_key, purpose=_PURPOSE)
        for sealed in (record.active, *record.retiring)
    )


class StartTickets:
    """Makes and judges tickets. `keys` is asked when the first ticket is made or judged, and again when `stamp` has
    changed since: the authorities that they come from were."""

    def __init__(
        self, keys: Callable[[], tuple[bytes, ...]], *, stamp: Callable[[], int] = lambda: 0
    ) -> None:
        self._source = keys
        self._stamp = stamp
        self._keys: tuple[bytes, ...] = ()
        self._stamped = 0

    def of(self, record: InstanceRecord) -> str:
        """The same for each sending of a start; none for one from before there were tickets."""
        if not record.serial:
            return ""
        facts = _facts(record.node, record.id, record.group, record.incarnation)
        body = f"{_PREFIX}.{record.serial}.{record.plan_hash}"
        return f"{body}.{_code(self._all()[0], body, facts)}"

    def proven(self, text: str, *, node: str, id: str, group: str, incarnation: int) -> Ticket | None:
        """What the ticket says, if it was given to this node for this start; None for any other."""
        body, _, code = text.rpartition(".")
        prefix, _, rest = body.partition(".")
        serial, _, plan_hash = rest.partition(".")
        if len(text) > _MAX_LENGTH or prefix != _PREFIX or not serial.isascii() or not serial.isdigit():
            return None
        facts = _facts(node, id, group, incarnation)
        given = code.encode("utf-8", "replace")
        if not any(hmac.compare_digest(given, _code(key, body, facts).encode()) for key in self._all()):
            return None
        return Ticket(serial=int(serial), plan_hash=plan_hash)

    def _all(self) -> tuple[bytes, ...]:
        stamp = self._stamp()
        if not self._keys or stamp != self._stamped:
            self._keys = self._source()
            self._stamped = stamp
        return self._keys


def _facts(node: str, id: str, group: str, incarnation: int) -> bytes:
    return msgspec.json.encode([node, id, group, start_number(incarnation)])


def _code(key: bytes, body: str, facts: bytes) -> str:
    digest = hmac.digest(key, body.encode("utf-8", "replace") + b"\n" + facts, hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
