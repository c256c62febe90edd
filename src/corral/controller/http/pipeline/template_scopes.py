"""Templates within the scope of a caller: those that a group of it uses, or that were saved from its instances alone. Of all
others a caller with a scope does not learn whether they exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.controller.state.cluster_state import ClusterState
from corral.controller.templates.template_usage import groups_using, template_groups_of, templates_of
from corral.domain.access import ANY, Access
from corral.domain.groups.group import GroupSpec
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_LISTS: Final = {"all_of": False, "one_of": False, "all_in_groups": True, "one_in_groups": True}
"""The lists of a template selection, and whether they name template groups."""


def covers_template(access: Access, permission: Permission, state: ClusterState, name: str) -> bool:
    """Whether a template exists for a caller. All of them do for a caller that may write all: it can have any of them used.
    The instances of a group are within a scope that names no nodes, wherever they ran."""
    if access.allows_everywhere(permission) or access.allows_everywhere(Permission.TEMPLATES_MANAGE):
        return True
    used = any(access.allows_on_group(permission, each) for each in groups_using(state, name))
    stored = state.templates.find(name)
    origin = stored.record.saved_from if stored is not None else ""
    saved = bool(origin) and access.allows_on_instance(permission, origin, ANY)
    return stored is not None and (used or saved)


def refuse_templates_outside(
    access: Access, state: ClusterState, document: Mapping[str, Any], before: GroupSpec | None = None
) -> None:
    """TEMPLATE_NOT_FOUND for a document that takes up a template which is not there for its caller, in the same words whether
    there is one or not. Those that the group has already stay; `before`: the group as it is. A template group is not taken
    up, for the caller would get what others put into it later, too: FORBIDDEN, also for one that does not exist."""
    kept, kept_groups = (templates_of(state, before), template_groups_of(before)) if before else ((), ())
    for (name, is_group), field in {
        (name, is_group): field for field, name, is_group in _named(document)
    }.items():
        if is_group and name not in kept_groups:
            raise Rejected(
                Code.FORBIDDEN,
                f"a token with a scope selects no template group anew, and '{name[:80]}' is one",
                hint="templates of others may come into it; name the templates themselves in 'templates', 'all_of' or 'one_of'",
                field=field,
            )
        if not is_group and name not in kept and not _may_take_up(access, state, name):
            raise _not_to_be_taken_up(access, state, name, field)


def _may_take_up(access: Access, state: ClusterState, name: str) -> bool:
    """Whether a caller may read the files of a template, or manages a group that uses it: an instance shows them."""
    either = (Permission.GROUPS_MANAGE, Permission.TEMPLATES_CONTENT)
    return any(covers_template(access, each, state, name) for each in either)


def _not_to_be_taken_up(access: Access, state: ClusterState, name: str, field: str) -> Rejected:
    hint = "use a template of a group within the scope of the token; 'corral template list' shows them"
    listed = covers_template(access, Permission.TEMPLATES_READ, state, name)
    if listed and state.templates.find(name) is not None:
        what = f"no group within the scope of the token uses template '{name}', and its files may not be read"
        return Rejected(Code.FORBIDDEN, what, hint=hint, field=field)
    return Rejected(Code.TEMPLATE_NOT_FOUND, f"template '{name[:80]}' does not exist", hint=hint, field=field)


def _named(document: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """The templates and template groups that a document names, as it was sent, each with its field; what is of another type
    is refused elsewhere."""
    for position, name in enumerate(_items(document, "templates")):
        if isinstance(name, str):
            yield f"templates/{position}", name, False
    selection = document.get("template_selection")
    if not isinstance(selection, Mapping):
        return
    for kind, is_group in _LISTS.items():
        for position, choice in enumerate(_items(selection, kind)):
            if isinstance(choice, Mapping) and isinstance(name := choice.get("name"), str):
                yield f"template_selection/{kind}/{position}", name, is_group


def _items(document: Mapping[str, Any], field: str) -> list[Any] | tuple[Any, ...]:
    found = document.get(field)
    return found if isinstance(found, list | tuple) else ()
