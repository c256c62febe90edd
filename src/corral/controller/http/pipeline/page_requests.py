"""Requests of module pages: the dashboard sends them on behalf of a page, and names its module in `Corral-Page`.

Routes of a module and the operations on it share `/api/v1/modules/ID/`. The header narrows a request to the routes of that one module:
a page can neither manage its module nor reach anything else, whatever the person in front of it may do. It grants
nothing: without it the same request is answered as any other of that person.
"""

from __future__ import annotations

from typing import Final

from corral.controller.http.messages.request import PAGE_MODULE, HttpRequest
from corral.controller.http.pipeline.route_table import Relay, Route
from corral.errors import Code, Rejected

HEADER: Final = b"corral-page"
_SHOWN: Final = 80


def check_page(request: HttpRequest, route: Route | None) -> None:
    """FORBIDDEN for a request of a module's page to anything but a route of this module; BAD_REQUEST for two pages."""
    if request.header(HEADER) is None:
        return
    given = {value.decode("latin-1").strip() for name, value in request.scope["headers"] if name == HEADER}
    if len(given) > 1:
        raise Rejected(Code.BAD_REQUEST, "the request names several pages", field="Corral-Page")
    (page,) = given
    if isinstance(route, Relay) and request.scope["path_params"]["id"] == page:
        request.scope[PAGE_MODULE] = page[:_SHOWN]
        return
    raise Rejected(
        Code.FORBIDDEN,
        f"a page of module '{page[:_SHOWN]}' may call routes of this module alone",
        hint="leave the header Corral-Page out, unless a page asks",
        field="Corral-Page",
    )
