"""Enrolment of nodes: join tokens are issued and exchanged for certificates.

A token enrols one key once. The same token with the same key is answered again with the same certificate,
because the first answer may have been lost; any other key is refused.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import JOIN_TOKENS, NODES, SPOOLS
from corral.controller.state.ledger import Actor, Ledger, Step, audit
from corral.domain.events import Draft, EventType
from corral.domain.ids import JoinTokenId, NodeId
from corral.domain.ids import node_id as checked_node_id
from corral.domain.node_claims import check_labels
from corral.domain.node_states import NODE_LIFECYCLE, NodeState, NodeTrigger
from corral.domain.records import JoinTokenRecord, NodeRecord, Renewal, with_claims
from corral.errors import Code, Rejected, Retryable
from corral.pki.authority import Authority, Issued
from corral.pki.join_token import JoinToken
from corral.pki.keys import key_digest, new_key, read_csr
from corral.store.port import ABSENT
from corral.store.store_errors import Conflict
from corral.system.clock import Clock
from corral.system.entropy import Entropy, new_id
from corral.system.opaque_secrets import secret_digest, secret_matches

RESERVED_NODE_IDS: Final = frozenset({"join-tokens"})
_ATTEMPTS: Final = 5


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an accepted join token."""

    node_id: NodeId
    certificate_pem: bytes
    pkcs12: bytes = b""
    pkcs12_password: str = ""


def usable_node_id(value: str, *, field: str = "node_id") -> NodeId:
    """A well-formed node id that is not reserved by a path of the API."""
    name = checked_node_id(value, field=field)
    if name in RESERVED_NODE_IDS:
        raise Rejected(
            Code.INVALID_FIELD, f"'{name}' is a reserved word", hint="choose another node id", field=field
        )
    return name


def new_join_token(
    state: ClusterState,
    *,
    node_id: str | None,
    replace: bool,
    ttl_seconds: int,
    created_by: str,
    now: dt.datetime,
    entropy: Entropy,
    bootstrap_addresses: Sequence[str],
    labels: Mapping[str, str] | None = None,
) -> tuple[JoinTokenRecord, str]:
    """A token's record to be stored, and its text to be shown once."""
    node = usable_node_id(node_id) if node_id else None
    known = state.nodes.find(node) if node else None
    if known is not None and not replace and known.record.state is not NodeState.REVOKED:
        raise Rejected(
            Code.ALREADY_EXISTS,
            f"node '{node}' is already enrolled",
            hint="use --replace to let a new host take over this id, or choose another id",
            field="node_id",
        )
    secret = entropy.secret(24)
    record = JoinTokenRecord(
        id=JoinTokenId(new_id("join", entropy)),
        secret_sha256=secret_digest(secret),
        node_id=node,
        replace=replace,
        created_at=now,
        expires_at=now + dt.timedelta(seconds=ttl_seconds),
        created_by=created_by,
        labels=dict(labels or {}),
    )
    check_labels(record.labels)
    certificate = x509.load_pem_x509_certificate(state.authorities.active.certificate_pem.encode())
    token = JoinToken(
        id=record.id,
        secret=secret,
        cluster=state.identity.id,
        authority_der=certificate.public_bytes(Encoding.DER),
        bootstrap=tuple(bootstrap_addresses),
    )
    return record, token.encode()


class Enrolment:
    """Exchanges join tokens for certificates and renews certificates of enrolled nodes."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        authority: Authority,
        clock: Clock,
        certificate_life: dt.timedelta,
    ) -> None:
        self._ledger = ledger
        self._authority = authority
        self._clock = clock
        self._life = certificate_life

    async def exchange(
        self, *, token_text: str, node_id: str, csr_pem: bytes, machine_id: str, address: str
    ) -> Admitted:
        """Enrol the bearer of a token. Idempotent for the same token and key until the token expires.

        Without a certificate request the published protocol applies: the controller makes the key and returns
        it in a PKCS#12 archive; such an exchange cannot be repeated.
        """
        token = JoinToken.parse(token_text)
        made = None if csr_pem else new_key()
        key = made.public_key() if made else read_csr(csr_pem)
        for _ in range(_ATTEMPTS):
            stored = self._verified(token)
            name = self._node_name(stored.record, node_id)
            if stored.record.used_at is not None:
                return self._repeat(stored.record, name, key)
            try:
                issued = await self._admit(stored, name, key, machine_id, address)
            except Conflict:
                continue  # the token or the node changed concurrently: evaluate again
            if made is None:
                return Admitted(node_id=name, certificate_pem=issued.certificate_pem)
            return self._with_archive(name, issued, made)
        raise Retryable(
            Code.CONFLICT, f"node '{node_id}' is being enrolled by others right now", hint="try again"
        )

    def _verified(self, token: JoinToken) -> StoredRecord[JoinTokenRecord]:
        stored = self._ledger.state.join_tokens.find(token.id)
        if stored is None or not secret_matches(token.secret, stored.record.secret_sha256):
            raise Rejected(
                Code.JOIN_TOKEN_INVALID,
                "the join token is not known here",
                hint="it may have been revoked; make a new one with 'corral node join-token'",
            )
        if stored.record.expires_at <= self._clock.now():
            raise Rejected(
                Code.JOIN_TOKEN_EXPIRED,
                f"the join token expired at {stored.record.expires_at:%Y-%m-%d %H:%M:%S} UTC",
                hint="make a new one with 'corral node join-token'",
            )
        return stored

    @staticmethod
    def _node_name(record: JoinTokenRecord, asked: str) -> NodeId:
        if record.node_id is None:
            return usable_node_id(asked)
        if asked and asked != record.node_id:
            raise Rejected(
                Code.JOIN_TOKEN_INVALID,
                f"the join token is for node '{record.node_id}', not '{asked[:80]}'",
                hint=f"join as '{record.node_id}', or make a token for the other id",
            )
        return record.node_id

    @staticmethod
    def _repeat(record: JoinTokenRecord, name: NodeId, key: ec.EllipticCurvePublicKey) -> Admitted:
        if record.used_key_sha256 != key_digest(key) or record.used_by != name:
            raise Rejected(
                Code.JOIN_TOKEN_USED,
                f"the join token was already used by node '{record.used_by}'",
                hint="each host needs its own token: 'corral node join-token'",
            )
        return Admitted(node_id=name, certificate_pem=record.certificate_pem.encode())

    async def _admit(
        self,
        stored: StoredRecord[JoinTokenRecord],
        name: NodeId,
        key: ec.EllipticCurvePublicKey,
        machine_id: str,
        address: str,
    ) -> Issued:
        state = self._ledger.state
        known = state.nodes.find(name)
        if known is not None and known.record.state is not NodeState.REVOKED and not stored.record.replace:
            raise Rejected(
                Code.NODE_ID_IN_USE,
                f"node '{name}' is already enrolled",
                hint="make the token with --replace to let this host take over, or join under another id",
            )
        now = self._clock.now()
        issued = self._authority.issue_node(name, key, life=self._life)
        token = msgspec.structs.replace(
            stored.record,
            used_at=now,
            used_by=name,
            used_key_sha256=key_digest(key),
            certificate_pem=issued.certificate_pem.decode(),
        )
        steps: list[Step] = [
            JOIN_TOKENS.put(token.id, token, expect=stored.revision),
            NODES.put(
                name,
                _with_labels(_enrolled(name, known, issued, machine_id, now), stored.record.labels),
                expect=known.revision if known else ABSENT,
            ),
            SPOOLS.delete(name, expect=None),
            Draft(type=EventType.JOIN_TOKEN_USED, subject=token.id, data={"node_id": name}),
            Draft(type=EventType.NODE_ENROLLED, subject=name, data={"replaced": known is not None}),
            audit(Actor(name=f"join-token:{token.id}", address=address), "nodes.enrol", name),
        ]
        await self._ledger.commit(*steps)
        return issued

    @staticmethod
    def _with_archive(name: NodeId, issued: Issued, key: ec.EllipticCurvePrivateKey) -> Admitted:
        password = secrets.token_urlsafe(18)
        certificate = x509.load_pem_x509_certificate(issued.certificate_pem)
        archive = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, None, BestAvailableEncryption(password.encode())
        )
        return Admitted(
            node_id=name, certificate_pem=issued.certificate_pem, pkcs12=archive, pkcs12_password=password
        )

    async def renew(self, node_id: NodeId, *, proven: str, csr_pem: bytes) -> bytes:
        """A further certificate for a node that authenticated with the one of serial `proven`.

        That certificate stays valid beside the new one, whatever else was issued and never used: a lost
        answer must not lock the node out. The same key is answered with the same certificate.
        """
        key = read_csr(csr_pem)
        digest = key_digest(key)
        issued = self._authority.issue_node(node_id, key, life=self._life)

        def change(stored: StoredRecord[NodeRecord]) -> tuple[NodeRecord, list[Step]] | None:
            if stored.record.state is NodeState.REVOKED:
                raise Rejected(Code.CERTIFICATE_REFUSED, f"node '{node_id}' is revoked")
            last = stored.record.renewal
            if last is not None and last.key_sha256 == digest and last.serial in stored.record.serials:
                return None
            renewal = Renewal(
                key_sha256=digest, certificate_pem=issued.certificate_pem.decode(), serial=issued.serial
            )
            event = Draft(
                type=EventType.NODE_CERTIFICATE_RENEWED,
                subject=node_id,
                data={"not_after": issued.not_after.isoformat()},
            )
            serials = (issued.serial, proven)
            return msgspec.structs.replace(stored.record, serials=serials, renewal=renewal), [event]

        stored = await self._ledger.revise(self._ledger.state.nodes, node_id, change)
        assert stored.record.renewal is not None, "a renewal was just stored, or found"
        return stored.record.renewal.certificate_pem.encode()


def _with_labels(record: NodeRecord, labels: Mapping[str, str]) -> NodeRecord:
    """The record with the labels that the operator set in the join token."""
    settings = msgspec.structs.replace(
        record.settings,
        labels={**record.settings.labels, **labels},
        withheld=tuple(key for key in record.settings.withheld if key not in labels),
    )
    return with_claims(record, record.claimed, settings)


def _enrolled(
    name: NodeId, known: StoredRecord[NodeRecord] | None, issued: Issued, machine_id: str, now: dt.datetime
) -> NodeRecord:
    """The record of a node that just joined. Of an earlier holder of the id only an operator's settings are
    kept: its admission, log level, labels and limits."""
    if known is None:
        state = NODE_LIFECYCLE.initial
        return NodeRecord(
            id=name,
            state=state,
            state_since=now,
            reason="enrolled",
            enrolled_at=now,
            serials=(issued.serial,),
            machine_id=machine_id,
        )
    state = NODE_LIFECYCLE.step(f"node '{name}'", known.record.state, NodeTrigger.ENROL_AGAIN)
    return NodeRecord(
        id=name,
        state=state,
        state_since=now,
        reason="enrolled again",
        enrolled_at=now,
        serials=(issued.serial,),
        machine_id=machine_id,
        admission=known.record.admission,
        admission_reason=known.record.admission_reason,
        log_level=known.record.log_level,
        settings=known.record.settings,
    )
