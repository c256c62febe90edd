"""Errors between a module and its host, as exceptions that a module can catch."""

from __future__ import annotations

from typing import Final


class SdkError(Exception):
    """Base class of all exceptions of the SDK.

    ```python
    try:
        await ctx.events.publish("MATCH_OVER", {"winner": "red"})
    except SdkError as failure:
        ctx.logger.warning("not told: %s", failure)
    ```
    """


class HostError(SdkError):
    """The host did not carry out a call. `code` is stable, `message` describes the error and its cause,
    `hint` what to do next.

    ```python
    except HostError as failure:
        ctx.logger.warning("%s: %s", failure.code, failure.message)
    ```
    """

    code_of_class: str = ""

    def __init__(self, message: str, *, code: str = "", hint: str = "") -> None:
        self.code = code or self.code_of_class
        self.message = message
        self.hint = hint
        super().__init__(f"{message}; {hint}" if hint else message)


class CapabilityUnavailable(HostError):
    """There is no provider of the capability now, or the manifest does not require it.

    ```python
    if journey.available:
        try:
            await journey.call.last_seen(player="ada")
        except CapabilityUnavailable:
            ...  # it went away in between
    ```
    """

    code_of_class = "CAPABILITY_UNAVAILABLE"


class CapabilityTypeError(HostError):
    """A value does not have the type that the contract names; the message holds its place.

    ```python
    await journey.call.last_seen(player=3)  # CapabilityTypeError: … Expected `str`, got `int` - at `$.player`
    ```
    """

    code_of_class = "CAPABILITY_TYPE"


class StorageQuotaExceeded(HostError):
    """The module's storage is full (`storage.limits` in the manifest). Nothing was written.

    ```python
    except StorageQuotaExceeded:
        await matches.delete_many(F.at < last_month)
    ```
    """

    code_of_class = "STORAGE_QUOTA"


class StorageUnavailable(HostError):
    """This module has no such storage here, or it does not answer at present.

    ```python
    storage = ctx.find_document_storage()  # None instead of this error
    ```
    """

    code_of_class = "STORAGE_UNAVAILABLE"


class QueryInvalid(HostError):
    """A filter, an update or an index is invalid. Nothing was done.

    ```python
    await matches.find({"score": {"above": 3}})  # QueryInvalid: unknown operator 'above' …
    ```
    """

    code_of_class = "QUERY_INVALID"


class HostTimeout(HostError):
    """No answer by the deadline. The call may or may not have been carried out.

    ```python
    except HostTimeout:
        ...  # ask again, if asking twice does no harm
    ```
    """

    code_of_class = "TIMEOUT"


class Refused(HostError):
    """The host refused for any other reason; `code` is the reason.

    ```python
    except Refused as refused:
        assert refused.code == "FORBIDDEN"
    ```
    """


class BadRegistration(SdkError):
    """A route, a command, a capability binding or its contract cannot be registered as it is.

    ```python
    routes.get("players", self.players)  # BadRegistration: … has to begin with '/'
    ```
    """


class ContextMisused(SdkError):
    """Something was used where it cannot work; the message names where it can.

    ```python
    ctx.run(ctx.events.publish("X"))  # in an `async def`: ContextMisused: … use await
    ```
    """


_TIMEOUTS: Final = frozenset({"TIMEOUT", "MODULE_TIMEOUT"})
_CLASSES: Final[dict[str, type[HostError]]] = {
    kind.code_of_class: kind
    for kind in (
        CapabilityUnavailable,
        CapabilityTypeError,
        StorageQuotaExceeded,
        StorageUnavailable,
        QueryInvalid,
    )
}


def host_error(code: str, message: str, hint: str = "") -> HostError:
    """The exception for a failure of the host."""
    if code in _TIMEOUTS:
        return HostTimeout(message, code=code, hint=hint)
    return _CLASSES.get(code, Refused)(message, code=code, hint=hint)
