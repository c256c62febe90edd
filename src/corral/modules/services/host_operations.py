"""Host operations: the methods that a host offers to its modules, one value per method, assembled by the
host's wiring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from corral.errors import Bug, Code, Rejected, unknown_choice
from corral.modules.scope import Scope
from corral.sdk.protocol.frame_limits import FROM_MODULE


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A method of the host, one of those in `corral.sdk.protocol.frame_limits`: the size of its frame is
    checked before it arrives here. `handler` gets the scope of the calling module and the decoded body; what
    it returns is the answer's body. A `CorralError` it raises reaches the module with its code."""

    method: str
    body: type[Any]
    handler: Callable[[Scope, Any], Awaitable[object]]


NoticeHandler = Callable[[Scope, msgspec.Raw], None]
"""Handles a notice (a message without an answer) of a module; must neither block nor raise anything but
`OverLimit`, for a notice that holds more than it may."""


class OperationTable:
    """All operations of a host, called on behalf of a scope."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._operations: Mapping[str, Operation] = {known.method: known for known in operations}
        unlimited = self._operations.keys() - FROM_MODULE.keys()
        if unlimited:
            raise Bug(
                f"operations without a limit in corral.sdk.protocol.frame_limits: {', '.join(sorted(unlimited))}"
            )

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(self._operations)

    async def serve(self, scope: Scope, method: str, body: msgspec.Raw) -> object:
        """The answer to one call. Rejected NOT_FOUND for an unknown method, BAD_REQUEST for a body that does
        not fit, NOT_RUNNING once the scope is closed: its registrations could not be undone any more."""
        if scope.closed:
            raise Rejected(Code.NOT_RUNNING, f"module '{scope.module_id}' is not running any more")
        operation = self._operations.get(method)
        if operation is None:
            raise unknown_choice("method", method, self._operations, code=Code.NOT_FOUND)
        try:
            request = msgspec.msgpack.decode(body, type=operation.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Rejected(Code.BAD_REQUEST, f"the body of '{method}' does not fit: {error}") from None
        return await operation.handler(scope, request)
