"""Our errors as gRPC statuses and back: the code is sent beside the text, so no text is parsed."""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

import grpc

from corral.errors import Bug, Code, CorralError, Rejected, Retryable

_CODE_KEY: Final = "corral-code"
_STATUS: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    410: grpc.StatusCode.OUT_OF_RANGE,
    412: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.DATA_LOSS,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_UNREACHED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,  # gRPC's status when the connection is cut during a write
        grpc.StatusCode.UNKNOWN,
    }
)
"""Statuses without a code of ours that do not concern the request: it may be retried."""
_LATER: Final = frozenset({Code.RATE_LIMITED, Code.CONFLICT})
"""Refusals that may pass."""
_MAX_DETAILS: Final = 1000

_OUT_OF_TIME = ("certificate is not yet valid", "certificate has expired")
"""gRPC's own text when a certificate is fine and a clock is not, or the reverse."""


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: CorralError) -> NoReturn:
    """End a call with this error; raises, as gRPC's own abort does."""
    status = _STATUS.get(error.code.status, grpc.StatusCode.INTERNAL)
    await context.abort(status, str(error)[:_MAX_DETAILS], ((_CODE_KEY, error.code.name),))
    raise Bug("a gRPC abort returned")


def from_rpc(error: grpc.aio.AioRpcError, *, peer: str) -> CorralError:
    """The error that the other side sent, or that it could not be reached."""
    trailers = cast(Any, error.trailing_metadata())  # grpc.aio.Metadata, which the stubs do not know
    name = str(trailers.get(_CODE_KEY, "")) if trailers is not None else ""
    details = error.details() or error.code().name
    if name in Code.__members__:
        later = Code[name].status >= 500 or Code[name] in _LATER
        return (Retryable if later else Rejected)(Code[name], details)
    if error.code() in _UNREACHED:
        clock = any(words in details for words in _OUT_OF_TIME)
        return Retryable(
            Code.UNREACHABLE,
            f"{peer} cannot be reached: {details}",
            hint="compare the clocks of both hosts" if clock else None,
        )
    return Rejected(Code.BAD_REQUEST, f"{peer} refused the call: {error.code().name} {details}")
