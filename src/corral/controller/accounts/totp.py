"""The second factor: codes by time (RFC 6238; SHA-1, 6 digits, 30 s, as all authenticator apps have them).

A code is accepted once: `accepted_step` returns the step to be stored as `last_totp_step`, under compare-and-set, before
the login is answered; of two logins with one code one conflicts. Steps are of the wall clock, for the app knows no
other. A clock that is set back makes no used code valid again, because the stored step does not go back.
"""

from __future__ import annotations

import base64
import datetime as dt
import hmac
import re
from typing import Final

import pyotp

from corral.domain.ids import UserName, UserSessionId
from corral.errors import Rejected
from corral.pki.keys import ClusterKey
from corral.system.entropy import Entropy

SECRET_BYTES: Final = 20
STEP_SECONDS: Final = 30
DIGITS: Final = 6
_SLACK: Final = 1
"""Steps before and after the present one that are accepted: clocks differ, and people type slowly."""
_CODE: Final = re.compile(r"[0-9]{6}")
_GAPS: Final = re.compile(r"[ \u00a0-]")
_LONGEST: Final = 16
SETUP_LIFE: Final = dt.timedelta(minutes=10)
_TIME_BYTES: Final = 8


def new_totp_secret(entropy: Entropy) -> bytes:
    """160 bits, the size that RFC 4226 recommends."""
    return entropy.secret(SECRET_BYTES)


def seal_totp(secret: bytes, *, user: UserName, key: ClusterKey, entropy: Entropy) -> str:
    """The secret as a user's record stores it. It is sealed for this user: in another record it cannot be opened."""
    return key.seal(secret, purpose=_purpose(user), entropy=entropy)


def unseal_totp(sealed: str, *, user: UserName, key: ClusterKey) -> bytes:
    """FORMAT_INVALID: this controller has another cluster key, or the record was damaged."""
    return key.unseal(sealed, purpose=_purpose(user), subject=f"the second factor of user '{user}'")


def seal_setup(
    secret: bytes, *, session: UserSessionId, now: dt.datetime, key: ClusterKey, entropy: Entropy
) -> str:
    """A secret that is not confirmed yet, for the session that asked for it to send back soon: nothing is kept here."""
    until = int((now + SETUP_LIFE).timestamp()).to_bytes(_TIME_BYTES)
    return key.seal(until + secret, purpose=_setup_purpose(session), entropy=entropy)


def unseal_setup(sealed: str, *, session: UserSessionId, now: dt.datetime, key: ClusterKey) -> bytes | None:
    """None: it is not one of this session, or too old."""
    try:
        opened = key.unseal(sealed, purpose=_setup_purpose(session))
    except Rejected:
        return None
    until, secret = int.from_bytes(opened[:_TIME_BYTES]), opened[_TIME_BYTES:]
    return secret if now.timestamp() < until else None


def _setup_purpose(session: UserSessionId) -> str:
    return f"corral-totp-setup {session}"


def provisioning_uri(secret: bytes, *, user: UserName, cluster: str) -> str:
    """What an authenticator app reads, usually as a QR code. It holds the secret: show it once."""
    return _totp(secret).provisioning_uri(name=user, issuer_name=cluster)


def secret_text(secret: bytes) -> str:
    """The secret for people who type it, in groups of four."""
    text = base64.b32encode(secret).decode()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def accepted_step(secret: bytes, code: str, *, now: dt.datetime, last_step: int) -> int | None:
    """The step of a right code that was not used before; None: it is refused, and the reason is not told.

    As many steps are compared for any code, each in constant time."""
    plain = _GAPS.sub("", code[:_LONGEST])
    typed = plain if _CODE.fullmatch(plain) else ""
    present = int(now.timestamp()) // STEP_SECONDS
    totp = _totp(secret)
    accepted = None
    for step in range(present - _SLACK, present + _SLACK + 1):
        same = hmac.compare_digest(totp.generate_otp(step).encode(), typed.encode())
        if same and step > last_step:
            accepted = step  # the latest, should two have the same digits: then none is left
    return accepted


def _totp(secret: bytes) -> pyotp.TOTP:
    return pyotp.TOTP(base64.b32encode(secret).decode(), digits=DIGITS, interval=STEP_SECONDS)


def _purpose(user: UserName) -> str:
    return f"corral-totp {user}"
