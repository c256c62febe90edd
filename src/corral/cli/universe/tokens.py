"""API tokens in the place of Universe's API keys."""

from __future__ import annotations

from typing import Any, Final

from corral.cli.api.session import ApiSession
from corral.cli.token import TOKENS
from corral.domain.permissions import Permission
from corral.domain.universe.node_files import API_KEYS

_ME: Final = "/api/v1/auth/me"


def planned_tokens(session: ApiSession) -> list[dict[str, Any]]:
    """One for each kind of API keys: `created`, `unchanged` where there is one of its name, or `skipped` where the caller
    may not make any."""
    permissions = session.client.get(_ME).get("permissions") or []
    if Permission.TOKENS_MANAGE not in permissions:
        return [_token(key.token, key.role, "skipped") for key in API_KEYS]
    names = {str(each.get("name")) for each in session.client.pages(TOKENS)}
    return [_token(key.token, key.role, "unchanged" if key.token in names else "created") for key in API_KEYS]


def made_token(session: ApiSession, planned: dict[str, Any]) -> dict[str, Any]:
    """The token with its text, which is in no later answer."""
    if planned["action"] != "created":
        return planned
    made = session.client.post(TOKENS, {"name": planned["name"], "role": planned["role"]})
    return {**planned, "id": made["id"], "token": made["token"]}


def _token(name: str, role: str, action: str) -> dict[str, Any]:
    return {"name": name, "role": str(role), "action": action, "id": "", "token": ""}
