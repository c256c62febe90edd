"""Answers of the API as values, and its refusals and failures as errors of the command."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, Final

from corral.cli.failure import CommandRefused, Unreachable

_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
_MAYBE_TLS: Final = "; if it speaks TLS, write https://"
_OTHER_NAMES: Final = frozenset({62, 64})
_WRONG_TIMES: Final = frozenset({9, 10})
"""OpenSSL's codes: the name or the address is another one; not valid yet, or no longer."""
_LOG_IN: Final = "log in again"
_COMMANDS: Final = (
    ("POST /api/v1/auth/login, or 'corral login'", "corral login URL"),
    ("POST /api/v1/auth/totp/remove", "corral user totp remove"),
    ("POST /api/v1/auth/totp", "corral user totp enable"),
    ("POST /api/v1/auth/password", "corral user password"),
)
"""Requests that hints of the API name, the longer ones first, and the commands that send them."""
GZIP: Final = "gzip"
_REQUEST_ID: Final = "X-Request-Id"
_OF_PROXIES: Final = frozenset({502, 503, 504})
"""Answers of proxies while a controller is away."""


class ApiAnswers:
    """Of one controller; every complaint names its address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read(self, response: http.client.HTTPResponse, content: bytes) -> Any:
        """The body of an answer, None when it has none; raises `refusal` when it is one."""
        if not 200 <= response.status < 300:
            raise self.refusal(response, content)
        if not content:
            return None
        try:
            return json.loads(content)
        except ValueError:  # UnicodeDecodeError is one, too
            raise self.not_ours("no JSON") from None

    def unpacked(self, content: bytes, *, limit: int) -> bytes:
        """A body that was sent compressed, as long as it has no more than `limit` bytes."""
        import zlib

        unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # with the head and the checksum of gzip
        try:
            body = unpacking.decompress(content, limit)
        except zlib.error:
            raise self.not_ours("no gzip") from None
        if not unpacking.eof:
            raise self.not_ours("a compressed body that is cut, or too large")
        return body

    def refusal(self, response: http.client.HTTPResponse, content: bytes) -> CommandRefused | Unreachable:
        """The error that the API returned, or that the answer was not from the API."""
        status = response.status
        try:
            error = json.loads(content)["error"]
            message, code = str(error["message"]), str(error["code"])
        except (ValueError, KeyError, TypeError):
            return self.not_ours(f"status {status}", passing=status in _OF_PROXIES)
        return CommandRefused(
            message,
            hint=self._hint(str(error["hint"])) if error.get("hint") else None,
            code=code,
            status=status,
            field=str(error.get("field") or ""),
            request=response.getheader(_REQUEST_ID) or "",
            retry_after=_seconds(response.getheader("Retry-After")),
            details=_details(error.get("errors")),
            digest=str(error.get("digest") or ""),
        )

    def _hint(self, hint: str) -> str:
        """What to do next in the words of this command line."""
        if hint == _LOG_IN:
            return f"{hint}: corral login {self._url}"
        for request, command in _COMMANDS:
            hint = hint.replace(request, command)
        return hint

    def not_ours(self, what: str, *, passing: bool = False) -> Unreachable:
        return Unreachable(
            f"{self._url} does not answer like a Corral controller: {what}",
            hint="check the address, and any proxy in between; it is the HTTP one, not gRPC",
            passing=passing,
            in_doubt=passing,
        )

    def unreachable(self, error: Exception, *, changed: bool = False) -> Unreachable:
        """No answer came. `changed`: what was asked for may have been done."""
        why = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else str(error) or type(error).__name__
        )
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(f"cannot trust {self._url}: {error.verify_message}", hint=_trust_hint(error))
        if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            return Unreachable(
                f"{self._url} does not speak TLS: {why}",
                hint=f"is it {self._url.replace('https://', 'http://', 1)}?",
            )
        if changed and not isinstance(error, ConnectionRefusedError):
            return Unreachable(
                f"no answer from {self._url}: {why}",
                hint="it may have been done all the same; look before you repeat it",
                passing=True,
                in_doubt=True,
            )
        return Unreachable(
            f"cannot reach {self._url}: {why}",
            hint="is the controller running? choose another with --url or --context"
            + (_MAYBE_TLS if isinstance(error, http.client.RemoteDisconnected) else ""),
            passing=True,
        )


def _trust_hint(error: ssl.SSLCertVerificationError) -> str:
    match error.verify_code:
        case _code if _code in _OTHER_NAMES:
            return "use a name that is in its certificate; 'http.allowed_hosts' adds names to one of the cluster's authority"
        case _code if _code in _WRONG_TIMES:
            return "renew it on the controller's host, or check the clock of this one"
    return (
        "give the certificate of its authority: 'corral login URL --ca FILE', or CORRAL_CA=FILE; with 'http.tls.mode: "
        "cluster' it is DATA/ca/authority.pem on the controller's host"
    )


def _seconds(header: str | None) -> int:
    return int(header) if header is not None and header.isdecimal() else 0


def _details(found: Any) -> list[Any]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
