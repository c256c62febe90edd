"""Universe's choice of templates as a `template_selection`."""

from __future__ import annotations

from typing import Any, Final

from corral.domain.ids import checked_name
from corral.domain.templates import template_name
from corral.domain.universe.field_reports import SHOWN, FieldReader
from corral.errors import Rejected

FIELD: Final = "templateInstallationConfig"
OVERRIDE: Final = "onTemplatePasteOverridePresentFiles"
NAMED: Final = {"allOf": "all_of", "oneOf": "one_of"}
GROUPED: Final = {"allInGroups": "all_in_groups", "oneInGroups": "one_in_groups"}
SELECTIONS: Final = {to: field for field, to in (*NAMED.items(), *GROUPED.items())}
"""The field of a configuration that each list of a `template_selection` was made of."""
_PRIORITY: Final = 1_000_000
_STATIC: Final = "Universe lays no templates for a static configuration, and the group has 'templates: []'"
_STORAGE: Final = (
    "Corral has one storage of templates: the template has to be in the folder, or uploaded before"
)


def read_templates(fields: FieldReader, document: dict[str, Any], *, static: bool) -> None:
    """Add the templates of a configuration to the document of its group."""
    found = fields.object(FIELD)
    if static:
        document["templates"] = []
        if found is not None:
            fields.dropped(FIELD, _STATIC)
        return
    if found is None:
        return
    override = found.boolean(OVERRIDE)
    if override is not None:
        found.mapped(
            OVERRIDE,
            "template_selection.*.override",
            "files that are there are replaced" if override else "files that are there stay",
        )
    selection: dict[str, Any] = {}
    for field, to in {**NAMED, **GROUPED}.items():
        entries = found.items(field)
        if entries == []:
            found.dropped(field, "it is empty")
        choices = [
            choice
            for position, entry in enumerate(entries or ())
            if (choice := _choice(found, field, position, entry)) is not None
        ]
        if choices:
            selection[to] = [{**choice, "override": bool(override)} for choice in choices]
            names = ", ".join(choice["name"] for choice in choices)
            found.mapped(field, f"template_selection.{to}", names[:200])
    if selection:
        document["template_selection"] = selection
        if override is None:
            found.mapped(OVERRIDE, "template_selection.*.override", "left out: files that are there stay")
    fields.join(found)


def _choice(found: FieldReader, field: str, position: int, entry: Any) -> dict[str, Any] | None:
    """One entry; None: it has a fault. Of template groups also a name alone."""
    at = f"{field}[{position}]"
    grouped = field in GROUPED
    if isinstance(entry, str) and grouped:
        entry = {"group": entry}
    if not isinstance(entry, dict):
        found.fault(at, "it is no object", 'write {"name": …, "group": …, "priority": …}')
        return None
    part = FieldReader(found.file, entry, path=f"{found.path}.{at}")
    name, group = part.text("name"), part.text("group")
    priority = part.integer("priority", low=-_PRIORITY, high=_PRIORITY)
    storage = part.text("storage")
    if storage:
        part.dropped("storage", _STORAGE)
    chosen = _name(part, name or "", group or "", grouped=grouped)
    found.join(part)
    if part.faults:
        return None
    return {"name": chosen, "priority": priority} if priority is not None else {"name": chosen}


def _name(part: FieldReader, name: str, group: str, *, grouped: bool) -> str:
    """The name of the template, or of the template group, here."""
    try:
        if grouped:
            return checked_name((group or name).lower(), "template group", "group")
        if not name:
            part.fault("name", "it is missing", "name the template")
            return ""
        return template_name(f"{group}/{name}".lower().removeprefix("/"))
    except Rejected as error:
        text = f"{group}/{name}".strip("/")
        part.fault("name", f"{text[:SHOWN]!r} cannot be the name of a template", str(error.hint))
        return ""
