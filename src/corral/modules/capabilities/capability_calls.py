"""Calls of capabilities, once the provider is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol

import msgspec

from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected, Retryable, unknown_choice
from corral.modules.process.call_failures import ModuleRaised, ProcessGone
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import CAPABILITY, CapabilityAnswer, CapabilityRequest

LONGEST_CALL: Final = 30.0
BUILT_IN_CALL: Final = 10.0
"""Default deadline of a built-in method."""


class Consumer(Protocol):
    """The caller: a module of this host by its scope, or one of another host."""

    @property
    def name(self) -> str:
        """Name for warnings."""

    @property
    def manifest(self) -> Manifest: ...


BuiltInMethod = Callable[[Consumer | None, msgspec.Raw], Awaitable[object]]
"""Gets the caller (None: the host itself) and the arguments, a msgpack map by name."""


def seconds_of(deadline_ms: int, *, default: float) -> float:
    """The deadline in seconds: the caller's, bounded, or the default."""
    return min(deadline_ms / 1000 if deadline_ms > 0 else default, LONGEST_CALL)


def unavailable(id: str, why: str) -> Retryable:
    return Retryable(
        Code.CAPABILITY_UNAVAILABLE,
        f"capability '{id}' is not available: {why}",
        hint="see `corral module list`; a handle's `available` tells before a call",
    )


async def call_built_in(
    methods: Mapping[str, BuiltInMethod], consumer: Consumer | None, request: CapabilityRequest
) -> CapabilityAnswer:
    """Call a built-in method; it is cancelled at the caller's deadline."""
    _check_method(request, methods)
    try:
        async with asyncio.timeout(seconds_of(request.deadline_ms, default=BUILT_IN_CALL)):
            value = await methods[request.method](consumer, request.arguments)
    except TimeoutError:
        raise Retryable(
            Code.MODULE_TIMEOUT, f"'{request.capability}.{request.method}' took too long"
        ) from None
    return CapabilityAnswer(value=msgspec.Raw(msgspec.msgpack.encode(value)))


async def call_module(
    scope: Scope, methods: Collection[str], request: CapabilityRequest, *, waited: float
) -> CapabilityAnswer:
    """Call a provider. `waited` seconds were spent before and count. An overrun is counted against the
    provider only when it had as long as its hooks have: else a consumer with short deadlines could open the
    breaker of its provider."""
    _check_method(request, methods)
    patience = seconds_of(request.deadline_ms, default=scope.hook_deadline)
    left = max(patience - waited, 0.001)
    named = f"capability:{request.capability}.{request.method}"
    try:
        return await scope.call(
            named,
            CAPABILITY,
            msgspec.structs.replace(request, deadline_ms=round(left * 1000)),
            answer=CapabilityAnswer,
            deadline=left,
            blame=left >= scope.hook_deadline,
        )
    except ProcessGone:
        raise unavailable(request.capability, "its provider has just ended") from None
    except ModuleRaised as raised:
        if raised.kind == "CapabilityTypeError":
            raise Rejected(Code.CAPABILITY_TYPE, raised.detail, hint=raised.hint) from None
        if raised.kind == "CapabilityUnavailable":
            raise unavailable(request.capability, raised.detail) from None
        raise


def _check_method(request: CapabilityRequest, methods: Collection[str]) -> None:
    if request.method not in methods:
        raise unknown_choice(
            f"method of capability '{request.capability}'", request.method, methods, code=Code.CAPABILITY_TYPE
        )
