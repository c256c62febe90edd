"""Failures of calls: what, why, and the next step. Everything that a call raises is a `ClientError`, or a `ValueError`
for arguments that cannot be sent. No message holds a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_RATE_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
DONE_MAYBE: Final = "it may have been done all the same; look before you repeat it"
EARLIER: Final = f"at an earlier attempt {DONE_MAYBE}"
"""The next step where `in_doubt`: of this request, and of one that failed otherwise when it was repeated."""

IN_DOUBT: Final = frozenset(
    {
        "INTERNAL",
        "MAY_HAVE_ARRIVED",
        "MODULE_TIMEOUT",
        "NODE_OFFLINE",
        "NOT_LEADER",
        "STORE_UNAVAILABLE",
        "TIMEOUT",
    }
)
"""Codes of refusals after which a change may have been made all the same: the controller itself may not know."""


class ClientError(Exception):
    """What a call may raise. `message` is what and why, `hint` the next step, empty when nothing is known. `in_doubt`: the
    request, or an earlier attempt at it, may have taken effect all the same."""

    def __init__(self, message: str, *, hint: str = "", in_doubt: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.in_doubt = in_doubt

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ApiError(ClientError):
    """The controller refused. `code` is stable and from the list in docs/reference/errors.md."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        hint: str = "",
        field: str = "",
        request_id: str = "",
        retry_after: float | None = None,
        digest: str = "",
        errors: Sequence[Mapping[str, Any]] = (),
        in_doubt: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, in_doubt=in_doubt)
        self.code = code
        self.status = status
        """The HTTP status."""
        self.field = field
        """The part of the request that was wrong; empty: none."""
        self.request_id = request_id
        """The id under which the controller's log has the request."""
        self.retry_after = retry_after
        """After so many seconds it may be granted; None: the answer does not say."""
        self.digest = digest
        """With FILE_CHANGED: the SHA-256 of the file that is there."""
        self.errors = tuple(errors)
        """Each refused document, where several were sent."""

    def __str__(self) -> str:
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{super().__str__()} ({self.code}, {self.status}{request})"


class BadRequest(ApiError):
    """400, 413, 415 or 422: the request itself is wrong; `field` names the part."""


class Unauthorized(ApiError):
    """401: there is no token, or it is unknown, revoked or expired."""


class Forbidden(ApiError):
    """403: the role of the token does not grant it."""


class NotFound(ApiError):
    """404: there is no such resource, or the caller may not know of it."""


class Conflict(ApiError):
    """409: the present state does not allow it."""


class PreconditionFailed(ApiError):
    """412: `if_match` names a revision or digest that is not the present one. Nothing was changed."""


class RateLimited(ApiError):
    """429: too many requests, streams or uploads of this token; `retry_after` says when to come back."""


class Unavailable(ApiError):
    """503: no controller leads, or its store is out of reach."""


BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: BadRequest,
    415: BadRequest,
    422: BadRequest,
    _RATE_LIMITED: RateLimited,
    _UNAVAILABLE: Unavailable,
}
"""The class of a refusal by its status; any other is an `ApiError` itself."""


class Unreachable(ClientError):
    """No answer came. `in_doubt`: the request may have taken effect all the same; `passing`: time may mend it."""

    def __init__(
        self, message: str, *, hint: str = "", in_doubt: bool = False, passing: bool = False
    ) -> None:
        super().__init__(message, hint=hint, in_doubt=in_doubt)
        self.passing = passing


class InvalidAnswer(Unreachable):
    """Something answered, but not like a Corral controller: a proxy, another program, or a broken answer."""
