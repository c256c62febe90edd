"""The cookie of a session: its name, its attributes, and its values in a request.

Over TLS the name begins with `__Host-`: browsers then accept it from this host itself alone, and only with `Secure`. Plain
HTTP, which is for the own host, cannot have that; there the name has the port, so that two controllers on one host do not
overwrite each other's.
"""

from __future__ import annotations

from typing import Final

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import Headers
from corral.domain.accounts.records import SESSION_LIFE
from corral.domain.ids import ClusterId

CSRF_HEADER: Final = b"x-corral-csrf"
_ID_LETTERS: Final = 8
_MOST_VALUES: Final = 20
"""Another program on this host can add cookies of our name: so many are tried."""
_ENCODING: Final = "latin-1"


def cookie_name(request: HttpRequest, cluster: ClusterId) -> str:
    id = cluster[:_ID_LETTERS]
    if request.is_secure:
        return f"__Host-corral-{id}"
    _, port = request.scope.get("server") or ("", 0)
    return f"corral-{id}-{port}"


def set_cookie(request: HttpRequest, cluster: ClusterId, value: str) -> Headers:
    """The header that gives a browser its session."""
    return _header(request, cluster, value, seconds=int(SESSION_LIFE.total_seconds()))


def clear_cookie(request: HttpRequest, cluster: ClusterId) -> Headers:
    return _header(request, cluster, "", seconds=0)


def _header(request: HttpRequest, cluster: ClusterId, value: str, *, seconds: int) -> Headers:
    end = "; Secure" if request.is_secure else ""
    name = cookie_name(request, cluster)
    text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{end}"
    return ((b"set-cookie", text.encode(_ENCODING)),)


def cookie_values(request: HttpRequest, name: str) -> list[str]:
    """The values of the cookies of this name, the first few."""
    found: list[str] = []
    for each, header in request.scope["headers"]:
        if each != b"cookie":
            continue
        for pair in header.decode(_ENCODING).split(";"):
            given, _, value = pair.strip().partition("=")
            if given == name and len(found) < _MOST_VALUES:
                found.append(value.strip().strip('"'))
    return found
