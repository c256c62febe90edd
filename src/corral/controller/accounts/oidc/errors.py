"""Errors of logins with OpenID Connect. What a provider or a browser sent is never repeated in them: they are shown to
people who have not logged in."""

from __future__ import annotations

from corral.errors import Code, Rejected, Retryable

_AGAIN = "start the login again from the login page"
_CHECK = "local logins and tokens go on; check the section 'oidc' of the configuration and the provider"
_RETRY_AFTER = 5.0


def login_failed(why: str, *, hint: str = _AGAIN) -> Rejected:
    return Rejected(Code.OIDC_FAILED, f"the login with OpenID Connect failed: {why}", hint=hint)


def provider_unavailable(why: str, *, retry_after: float = _RETRY_AFTER) -> Retryable:
    message = f"the provider of OpenID Connect cannot be used: {why}"
    return Retryable(Code.OIDC_UNAVAILABLE, message, hint=_CHECK, retry_after=retry_after)


def no_role() -> Rejected:
    return Rejected(
        Code.OIDC_NO_ROLE,
        "the provider knows you, and none of your groups has a role here",
        hint="ask an administrator for a role: the controller's log names the groups that the provider sent",
    )
