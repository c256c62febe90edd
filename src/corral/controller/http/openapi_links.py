"""Links in the OpenAPI document: from an answer to the operations on what it has made or found, with where the answer has the
parameters of their paths. Generated clients and fuzzers walk along them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from corral.controller.http.pipeline.route_table import Route, Socket, Stream

_REF: Final = "#/components/links/{}"
_FIRST: Final = "/items/0"

Operations = Mapping[str, dict[str, Any]]
"""By the names of their routes."""


class Family(NamedTuple):
    """The operations on one kind of thing: those at `path` and below it that need no other parameter."""

    path: str
    fields: Mapping[str, str]
    """Where a thing has the parameters of the path: pointers into the answer."""
    makers: Sequence[str] = ()
    """The routes whose answer is such a thing."""
    lists: Sequence[str] = ()
    """The routes whose answer has `items` that are such things: they link to what shows or ends the first one."""
    like_request: Mapping[str, str] = {}
    """For makers that are asked by the same parameters, in place of `fields`: expressions about the request."""
    exactly: bool = False
    """Only operations whose query needs nothing else."""
    ending: str = ""
    """Of the names of these links, where another family leads to the same operations."""


_BY_ID: Final = {"id": "/id"}
_BY_NAME: Final = {"name": "/name"}
_API: Final = "/api/v1"

FAMILIES: Final = (
    Family(f"{_API}/groups/{{name}}", _BY_NAME, (f"POST {_API}/groups",), (f"GET {_API}/groups",)),
    Family(
        f"{_API}/instances/{{id}}",
        _BY_ID,
        (f"POST {_API}/instances", f"POST {_API}/groups/{{name}}/start"),
        (f"GET {_API}/instances",),
    ),
    Family(
        f"{_API}/deployments/{{id}}",
        _BY_ID,
        (f"POST {_API}/groups/{{name}}/deploy",),
        (f"GET {_API}/deployments",),
    ),
    Family(f"{_API}/nodes/{{id}}", _BY_ID, lists=(f"GET {_API}/nodes",)),
    Family(f"{_API}/tokens/{{id}}", _BY_ID, (f"POST {_API}/tokens",), (f"GET {_API}/tokens",)),
    Family(f"{_API}/users/{{name}}", _BY_NAME, (f"POST {_API}/users",), (f"GET {_API}/users",)),
    Family(f"{_API}/roles/{{name}}", _BY_NAME, (f"POST {_API}/roles",)),
    Family(f"{_API}/sessions/{{id}}", _BY_ID, lists=(f"GET {_API}/sessions",)),
    Family(
        f"{_API}/nodes/join-tokens/{{id}}",
        _BY_ID,
        (f"POST {_API}/nodes/join-tokens",),
        (f"GET {_API}/nodes/join-tokens",),
    ),
    Family(f"{_API}/modules/{{id}}", _BY_ID, (f"POST {_API}/modules",), (f"GET {_API}/modules",)),
    Family(f"{_API}/crashes/{{id}}", _BY_ID, lists=(f"GET {_API}/crashes",)),
    Family(
        f"{_API}/templates/{{name}}",
        _BY_NAME,
        (f"PUT {_API}/templates/{{name}}",),
        like_request={"name": "$request.path.name"},
    ),
    Family(
        f"{_API}/catalog/{{platform}}/{{version}}",
        {"platform": "/platform", "version": "/version"},
        (f"PUT {_API}/catalog/{{platform}}/{{version}}",),
        (f"GET {_API}/catalog",),
    ),
    Family(
        f"{_API}/instances/{{id}}/files",
        {},
        (f"PUT {_API}/instances/{{id}}/files/content", f"POST {_API}/instances/{{id}}/files/mkdir"),
        like_request={"id": "$request.path.id", "path": "$response.body#/path"},
        exactly=True,
        ending="-of-file",
    ),
)


def add_links(routes: Sequence[Route], operations: Operations) -> dict[str, dict[str, Any]]:
    """Give the answers of operations their links; the links themselves, for the components."""
    links: dict[str, dict[str, Any]] = {}
    sources = {route.name: route for route in routes}
    for family in FAMILIES:
        targets = list(_targets(family, routes))
        found = [(name, target, "") for name in family.makers for target in targets]
        found += [(name, each, _FIRST) for name in family.lists for each in _shown(targets, family.path)]
        for name, target, where in found:
            id = operations[target.name]["operationId"]
            link = f"{id}-of-first" if where else id + family.ending
            links[link] = {"operationId": id, "parameters": _parameters(family, where)}
            _add(operations[name]["responses"], sources[name], id, link)
    return links


def _add(answers: dict[str, dict[str, Any]], source: Route, id: str, link: str) -> None:
    """Not to the answer of a dry run, which has made nothing."""
    for status in {str(source.status), "201"} & answers.keys():
        answers[status].setdefault("links", {})[id] = {"$ref": _REF.format(link)}


def _targets(family: Family, routes: Sequence[Route]) -> Iterator[Route]:
    wanted = set(family.fields or family.like_request)
    for route in routes:
        below = route.path == family.path or route.path.startswith(f"{family.path}/")
        needs = set(route.parameters)
        if family.exactly:
            needs |= {field.encode_name for field in msgspec.structs.fields(route.query) if field.required}
        if below and not isinstance(route, Stream | Socket) and needs == wanted:
            yield route


def _shown(targets: Sequence[Route], path: str) -> list[Route]:
    """What shows one of a list, or, if nothing does, ends it."""
    own = [route for route in targets if route.path == path]
    return [route for route in own if route.method == "GET"] or own


def _parameters(family: Family, where: str) -> dict[str, str]:
    if family.like_request:
        return dict(family.like_request)
    return {name: f"$response.body#{where}{pointer}" for name, pointer in family.fields.items()}
