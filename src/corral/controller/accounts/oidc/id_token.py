"""ID tokens: signed by a key of the provider, with one of four algorithms, for this client, this login and now.

The algorithm comes from a list of ours and the key from the provider's key set: nothing in a token's header chooses
beyond that. Keys for HMAC are never read, so no public key can be taken for a secret.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.util import base64_to_int

from corral.controller.accounts.oidc.errors import login_failed
from corral.controller.accounts.oidc.http import json_object
from corral.errors import Rejected

SKEW: Final = dt.timedelta(seconds=60)
TOKEN_MAX: Final = 128 * 1024
MOST_KEYS: Final = 100
_HEADER_MAX: Final = 16 * 1024
_SIGNATURE_MAX: Final = 2048
_KEY_TYPES: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
ALGORITHMS: Final = tuple(_KEY_TYPES)
_CURVES: Final = {"EC": "P-256", "OKP": "Ed25519"}
_RSA_BITS: Final = range(2048, 8193)
_PUBLIC: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_MEMBER_MAX: Final = 2048
_EXPONENT_MAX: Final = 8
_MOST_TRIED: Final = 4
_ASK: Final = "start the login again; if it stays so, ask whoever runs the provider"


class TokenHeader(msgspec.Struct, frozen=True, kw_only=True):
    alg: str
    kid: str | None = None
    typ: str | None = None


class SigningKeys:
    """The public keys of a provider's key set that sign with one of our algorithms; others are left out."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        listed = document.get("keys")
        if not isinstance(listed, list) or len(listed) > MOST_KEYS:
            raise ValueError(f"it has no list of up to {MOST_KEYS} keys")
        self._keys = [key for key in listed if isinstance(key, dict) and key.get("use", "sig") == "sig"]

    def knows(self, kid: str | None) -> bool:
        return kid is None or any(key.get("kid") == kid for key in self._keys)

    def of(self, header: TokenHeader) -> list[Key]:
        """The keys that the token may be signed with; without a key id all of the right type, if they are few."""
        wanted = _KEY_TYPES[header.alg]
        fitting = [
            key
            for key in self._keys
            if key.get("kty") == wanted
            and key.get("alg", header.alg) == header.alg
            and (header.kid is None or key.get("kid") == header.kid)
        ]
        return [key for key in map(_public_key, fitting[:_MOST_TRIED]) if key is not None]


class _Registry(jws.JWSRegistry):
    """Our algorithms and sizes; headers that we do not know are ignored, unless they are critical."""

    max_header_length = _HEADER_MAX
    max_payload_length = TOKEN_MAX
    max_signature_length = _SIGNATURE_MAX

    def get_alg(self, name: str) -> Any:
        if name not in _KEY_TYPES:
            raise JoseError(f"algorithm {name!r}")
        return self.algorithms[name]  # without the library's warning: one of the four may be deprecated


def token_header(token: str) -> TokenHeader:
    """The header of a token whose signature is not checked yet; OIDC_FAILED for what cannot be an ID token."""
    if len(token) > TOKEN_MAX or not token.isascii() or token.count(".") != 2:
        raise _refused("it is none, or too long")
    segment = token.partition(".")[0]
    try:
        raw = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
        found = json_object(raw) if len(raw) <= _HEADER_MAX else {}
        header = msgspec.convert(found, TokenHeader)
    except ValueError:  # binascii's and msgspec's errors are such
        raise _refused("its header cannot be read") from None
    if "crit" in found or "b64" in found:
        raise _refused("its header has conditions that are not known here")
    if header.alg not in _KEY_TYPES:
        raise _refused(f"it is not signed with one of {', '.join(ALGORITHMS)}")
    if (header.typ or "JWT").upper() not in ("JWT", "APPLICATION/JWT"):
        raise _refused("it is a token of another kind")
    return header


def signed_claims(token: str, keys: Sequence[Key]) -> dict[str, Any]:
    """The claims, if one of these keys has signed them; OIDC_FAILED."""
    registry = _Registry(algorithms=ALGORITHMS, strict_check_header=False)
    for key in keys:
        try:
            found = jws.deserialize_compact(token, key, registry=registry)
        except (JoseError, ValueError):
            continue
        try:
            return json_object(found.payload or b"")
        except ValueError as why:
            raise _refused(str(why)) from None
    raise _refused("no key of the provider has signed it")


def check_claims(
    claims: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str, now: dt.datetime
) -> None:
    """Whether it is of this provider, for this client, of this login, and valid now; OIDC_FAILED."""
    if claims.get("iss") != issuer:
        raise _refused("it is of another issuer")
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    if client_id not in listed:
        raise _refused("it is for another client")
    authorised = claims.get("azp")
    if authorised != client_id and (len(listed) > 1 or authorised is not None):
        raise _refused("it was issued to another client")
    if not _same(claims.get("nonce"), nonce):
        raise _refused("it is of another login")
    skew, at = SKEW.total_seconds(), now.timestamp()
    if _time(claims, "exp") + skew <= at:
        raise _refused(
            "it has expired", hint="start the login again; compare the clocks of provider and controller"
        )
    starts = max(_time(claims, "iat"), _time(claims, "nbf") if "nbf" in claims else 0)
    if starts - skew > at:
        raise _refused("it is from the future", hint="compare the clocks of provider and controller")


def check_access_hash(claims: Mapping[str, Any], access_token: str, algorithm: str) -> None:
    """`at_hash`, where the token has it, ties the access token to it; OIDC_FAILED."""
    if "at_hash" not in claims:
        return
    digest = hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256
    whole = digest(access_token.encode("utf-8", "replace")).digest()
    expected = base64.urlsafe_b64encode(whole[: len(whole) // 2]).rstrip(b"=").decode()
    if not _same(claims["at_hash"], expected):
        raise _refused("it belongs to another access token")


def _same(sent: object, expected: str) -> bool:
    return isinstance(sent, str) and sent.isascii() and hmac.compare_digest(sent, expected)


def _time(claims: Mapping[str, Any], name: str) -> float:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 2**40:
        raise _refused(f"it has no time '{name}'")
    return float(found)


def _public_key(member: Mapping[str, Any]) -> Key | None:
    """The key without private and unknown parts; None for one that is too weak, too large or malformed."""
    kind = member["kty"]
    parts = {name: value for name in _PUBLIC[kind] if isinstance(value := member.get(name), str)}
    if len(parts) < len(_PUBLIC[kind]) or max(map(len, parts.values())) > _MEMBER_MAX:
        return None
    try:
        if kind == "RSA":
            weak = base64_to_int(parts["n"]).bit_length() not in _RSA_BITS  # first: the library warns of such
            return (
                None if weak or len(parts["e"]) > _EXPONENT_MAX else RSAKey.import_key({"kty": kind, **parts})
            )
        if parts["crv"] != _CURVES[kind]:
            return None
        return (ECKey if kind == "EC" else OKPKey).import_key({"kty": kind, **parts})
    except (JoseError, ValueError, TypeError):
        return None


def _refused(why: str, *, hint: str = _ASK) -> Rejected:
    return login_failed(f"the provider's token is refused: {why}", hint=hint)
