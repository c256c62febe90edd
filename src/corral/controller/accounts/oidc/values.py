"""What the API and a login with OpenID Connect exchange. Apart from `oidc`, whose libraries only a controller with a provider
has to load."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.accounts.oidc.claims import OidcIdentity
from corral.domain.bindings import Binding

CALLBACK_PATH: Final = "/api/v1/auth/oidc/callback"


class StartedLogin(msgspec.Struct, frozen=True, kw_only=True):
    location: str
    """Where the browser has to go."""
    set_cookie: str


class CallbackQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that the browser comes back with."""

    state: str = ""
    code: str = ""
    iss: str = ""
    error: str = ""


class FinishedLogin(msgspec.Struct, frozen=True, kw_only=True):
    identity: OidcIdentity
    bindings: tuple[Binding, ...]
    """Never empty."""
    return_path: str
    page_challenge: str
