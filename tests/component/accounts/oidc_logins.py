"""A browser's part of logins with OpenID Connect."""

from __future__ import annotations

import pathlib
from typing import Any

from corral.controller.accounts.oidc.login import OidcLogin
from corral.controller.accounts.oidc.values import CallbackQuery, FinishedLogin
from corral.system.clock import Clock, SystemClock
from corral.system.entropy import SystemEntropy
from corral.system.oidc_config import OidcSection
from tests.component.accounts.scripted_provider import CLIENT, SECRET, ScriptedProvider

PUBLIC = "https://corral.example.org"
KEY = bytes(range(32))


def section_for(issuer: str, directory: pathlib.Path, **changed: Any) -> OidcSection:
    secret = directory / "client.secret"
    secret.write_text(f"{SECRET}\n")
    settings: dict[str, Any] = {
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret_file": str(secret),
        "bindings": {"ops": "OPERATOR groups=lobby-*", "admins": "ADMIN"},
    }
    return OidcSection(**{**settings, **changed})


def login_with(
    issuer: str,
    directory: pathlib.Path,
    *,
    clock: Clock | None = None,
    key: bytes = KEY,
    seconds: float = 10,
    public_url: str = PUBLIC,
    **changed: Any,
) -> OidcLogin:
    return OidcLogin(
        section_for(issuer, directory, **changed),
        public_url=public_url,
        key=lambda: key,
        clock=clock or SystemClock(),
        entropy=SystemEntropy(),
        seconds=seconds,
    )


def cookie_in(header: str) -> str:
    name, _, rest = header.partition("=")
    assert name.endswith("corral-oidc")
    return rest.partition(";")[0]


async def log_in(login: OidcLogin, provider: ScriptedProvider, **query: str) -> FinishedLogin:
    """All of it; `query` is put over what the provider sends back."""
    started = await login.start(return_to="/groups")
    back = {**provider.authorize(started.location), **query}
    return await login.finish(CallbackQuery(**back), cookie=cookie_in(started.set_cookie))
