"""Answers of the API as values, and its refusals and failures as errors of the command."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator
from typing import Any, Final

from corral.cli.failure import CommandRefused, Unreachable
from corral.client import errors, failures
from corral.client.http1 import AnswerFault, Head

_MAYBE_TLS: Final = "; if it speaks TLS, write https://"
_LOG_IN: Final = "log in again"
_COMMANDS: Final = (
    ("POST /api/v1/auth/login, or 'corral login'", "corral login URL"),
    ("POST /api/v1/auth/totp/remove", "corral user totp remove"),
    ("POST /api/v1/auth/totp", "corral user totp enable"),
    ("POST /api/v1/auth/password", "corral user password"),
)
"""Requests that hints of the API name, the longer ones first, and the commands that send them."""
GZIP: Final = "gzip"
_LIMIT: Final = 64 * 1024 * 1024


class ApiAnswers:
    """Of one controller; every complaint names its address."""

    def __init__(self, url: str, *, login_hint: str = "") -> None:
        self._url = url
        self._login_hint = login_hint
        """Replaces the hint of an answer that asks for a token."""

    def read(self, head: Head, content: bytes, *, changed: bool) -> Any:
        """The body of an answer, None when it has none; raises `refusal` when it is one."""
        if head.get("Content-Encoding") == GZIP:
            with self.translated():
                content = failures.unpacked(self._url, content, limit=_LIMIT)
        if not 200 <= head.status < 300:
            raise self.refusal(head, content, changed=changed)
        if not content:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):  # UnicodeDecodeError is one of the first
            raise self.not_ours("no JSON") from None

    def refusal(self, head: Head, content: bytes, *, changed: bool) -> CommandRefused | Unreachable:
        """The error that the API returned, or that the answer was not from the API."""
        failure = failures.refusal(self._url, head, content, changes=changed)
        if isinstance(failure, errors.Unreachable):
            return self.unreachable(failure)
        hint = self._hint(failure.hint) if failure.hint else None
        return CommandRefused(
            failure.message,
            hint=self._login_hint or hint if failure.status == 401 else hint,
            code=failure.code,
            status=failure.status,
            field=failure.field,
            request=failure.request_id,
            retry_after=int(failure.retry_after or 0),
            details=failure.errors,
            digest=failure.digest,
        )

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Failures of a connection as those of a command."""
        try:
            yield
        except errors.Unreachable as failure:
            raise self.unreachable(failure) from failure

    def _hint(self, hint: str) -> str:
        """What to do next in the words of this command line."""
        if hint == _LOG_IN:
            return f"{hint}: corral login {self._url}"
        for request, command in _COMMANDS:
            hint = hint.replace(request, command)
        return hint

    def not_ours(self, what: str) -> Unreachable:
        return self.unreachable(failures.invalid(self._url, what))

    def unreachable(self, failure: errors.Unreachable) -> Unreachable:
        """No answer came, or none of a controller, with the next step in the words of the command line."""
        hint, cause = failure.hint, failure.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError) and hint == failures.UNKNOWN_AUTHORITY:
            hint = _NAME_AUTHORITY
        elif hint == failures.NOT_RUNNING:
            hint = f"{hint} choose another with --url or --context"
            hint += _MAYBE_TLS if isinstance(cause, AnswerFault | ConnectionResetError) else ""
        return Unreachable(failure.message, hint=hint, passing=failure.passing, in_doubt=failure.in_doubt)


_NAME_AUTHORITY: Final = (
    "give the certificate of its authority: 'corral login URL --ca FILE', or CORRAL_CA=FILE; with 'http.tls.mode: "
    "cluster' it is DATA/ca/authority.pem on the controller's host"
)
