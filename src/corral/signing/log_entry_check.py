"""The check of a transparency log's entry: signed by a trusted log, and about this archive and this signer."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography.hazmat.primitives import serialization

from corral.signing.bundle_reader import LogEntry
from corral.signing.foreign_certificates import load_pem
from corral.signing.refusals import UNREADABLE, refused, shown
from corral.signing.trust_root import LogKey, find_log

_ANOTHER: Final = "the bundle was put together from parts of several signatures; sign the archive anew"
_UNKNOWN_LOG: Final = "use a log that modules.signing.trust_root or modules.signing.rekor.public_key names"


class _EntryPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of Rekor's `hashedrekord` 0.0.1."""


class _Hash(_EntryPart, frozen=True, kw_only=True):
    algorithm: str
    value: str


class _Data(_EntryPart, frozen=True, kw_only=True):
    hash: _Hash


class _EntryKey(_EntryPart, frozen=True, kw_only=True):
    content: str


class _Signature(_EntryPart, frozen=True, kw_only=True):
    content: str
    public_key: _EntryKey


class _Spec(_EntryPart, frozen=True, kw_only=True):
    data: _Data
    signature: _Signature


class _Body(_EntryPart, frozen=True, kw_only=True):
    api_version: str
    kind: str
    spec: msgspec.Raw


def check_promise(entry: LogEntry, logs: Sequence[LogKey]) -> dt.datetime:
    """When a trusted log included the entry. The signed entry timestamp proves it."""
    if entry.promise is None or not entry.integrated_time:
        raise refused("its log entry carries no signed entry timestamp", hint=_signed_entry_hint())
    log = find_log(logs, entry.log_id)
    if log is None:
        raise refused(
            f"its log entry is of log {shown(entry.log_id)}, which is not trusted", hint=_UNKNOWN_LOG
        )
    if not log.key.signed_text(entry.promise, signed_form(entry)):
        raise refused("the signed entry timestamp was not made by the log's key over this entry")
    at = dt.datetime.fromtimestamp(entry.integrated_time, dt.UTC)
    if not log.window.holds(at):
        raise refused(f"its log entry is of {at:%Y-%m-%d}, when the log's key was not in use")
    return at


def check_subject(entry: LogEntry, *, digest: bytes, signature: bytes, signer: bytes) -> None:
    """The entry is about this archive, this signature, and this signer.

    `signer` is the DER form of the certificate or of the key. Without this check any entry of the log would
    be accepted.
    """
    spec = _spec(entry)
    hashed = spec.data.hash
    if hashed.algorithm != "sha256" or hashed.value.lower() != digest.hex():
        raise refused(
            f"its log entry is about {shown(hashed.algorithm)}:{shown(hashed.value)}, "
            f"not about this archive (sha256:{digest.hex()})",
            hint=_ANOTHER,
        )
    if _encoded_signer(spec.signature.public_key.content) != signer:
        raise refused("its log entry names another key or certificate than the bundle", hint=_ANOTHER)
    if _decoded(spec.signature.content) != signature:
        raise refused("its log entry holds another signature than the bundle", hint=_ANOTHER)


def signed_form(entry: LogEntry) -> bytes:
    """The bytes that the log signs: canonical JSON (RFC 8785) of the entry; keys in order, no blanks."""
    return msgspec.json.encode(
        {
            "body": base64.b64encode(entry.body).decode(),
            "integratedTime": entry.integrated_time,
            "logID": entry.log_id,
            "logIndex": entry.log_index,
        }
    )


def _spec(entry: LogEntry) -> _Spec:
    try:
        body = msgspec.json.decode(entry.body, type=_Body)
        if (body.kind, body.api_version) != ("hashedrekord", "0.0.1"):
            raise refused(
                f"its log entry is a {shown(body.kind)} {shown(body.api_version)}; hashedrekord 0.0.1 is expected"
            )
        return msgspec.json.decode(body.spec, type=_Spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(f"its log entry cannot be read ({shown(error)})") from error


def _encoded_signer(content: str) -> bytes:
    pem = _decoded(content)
    try:
        if b"-----BEGIN CERTIFICATE-----" in pem:
            return load_pem(pem)[0].public_bytes(serialization.Encoding.DER)
        return serialization.load_pem_public_key(pem).public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except UNREADABLE as error:
        raise refused("the signer in its log entry cannot be read") from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refused("its log entry holds something that is not base64") from error


def _signed_entry_hint() -> str:
    return (
        "sign with a log that answers with a signed entry timestamp (Rekor v1), "
        "or set modules.signing.rekor.policy to disabled"
    )
