"""Modules as tables and rows, with the extensions that they install into instances."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from corral.cli.api.client import segment
from corral.cli.failure import CommandRefused
from corral.cli.module.node_states import on_nodes, paint_nodes, phase_of, reason_of
from corral.cli.terminal.output import Column, Item, plain, state_column
from corral.cli.terminal.values import age, shortened, size_text
from corral.domain.modules.lifecycle_decisions import MODULES_DISABLED

if TYPE_CHECKING:
    from corral.domain.modules.manifest import Manifest


MODULES: Final = "/api/v1/modules"

COLUMNS: Final = (
    Column("ID", "id"),
    Column("VERSION", "version"),
    state_column("PHASE", "phase"),
    Column("INTENT", "intent"),
    Column("HOSTS", "hosts"),
    Column("NODES", on_nodes, paint=paint_nodes),
    Column("UPDATED", lambda found: age(found.get("updated_at"))),
    Column("REASON", reason_of),
)
_WAITS: Final = (
    "it starts by itself as soon as it can; 'corral capability list --unresolved' has what is missing"
)
_WITHOUT_MODULES: Final = (
    "modules are switched off: start the controller without --no-modules and with modules.enabled: true"
)
_SETTING_MAX: Final = 60
_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "length at least",
    "maxLength": "length at most",
    "pattern": "like",
}
LEAK_COLUMNS: Final = (
    Column("MODULE", "module"),
    Column("PID", lambda found: str(found.get("pid", ""))),
    Column("SINCE", lambda found: age(found.get("since"))),
    Column("KILLED", "killed"),
    Column("THREADS", "threads"),
    Column("TASKS", "tasks"),
    Column("CHILDREN", "children"),
)


def module_path(id: str, *more: str) -> str:
    """Refuses what would not be one part of a path, however it is quoted."""
    if "/" in id or id in ("", ".", ".."):
        raise CommandRefused(
            f"'{id}' is not a valid module id", hint="'corral module list' has the ids", code="INVALID_FIELD"
        )
    return "/".join((MODULES, segment(id), *more))


def module_status(found: Item) -> str:
    """The state of a module, in one sentence."""
    reason = f" ({found['reason']})" if found.get("reason") else ""
    return f"'{found.get('id')}' {found.get('version')} is {found.get('phase')}{reason}"


def refuse_failed(found: Item) -> None:
    """The request is stored, and the module does not run: a script has to notice."""
    if found.get("phase") == "FAILED":
        failure = found.get("failure") or {}
        raise CommandRefused(
            f"'{found.get('id')}' is FAILED: {failure.get('message') or found.get('reason')}",
            hint=f"'corral module info {found.get('id')}' shows the error and the log",
            code="MODULE_FAILED",
        )


def refuse_idle(found: Item) -> None:
    """The module shall run, and nothing failed, but it does not: a script has to notice that, too."""
    if found.get("intent") == "active" and found.get("phase") in ("WAITING", "INSTALLED"):
        why = f" ({found['reason']})" if found.get("reason") else ""
        raise CommandRefused(
            f"'{found.get('id')}' {found.get('version')} does not run yet: it is {found.get('phase')}{why}",
            hint=_WITHOUT_MODULES if found.get("reason") == MODULES_DISABLED else _WAITS,
            code="MODULE_NOT_ACTIVE",
        )


def info_rows(found: Item, schema: Item | None = None) -> list[tuple[str, str]]:
    """`schema`: what settings it takes, for those who may know."""
    live = found.get("live") or {}
    rows = [
        ("Id", plain(found.get("id"))),
        ("Title", plain(found.get("title"))),
        ("Description", plain(found.get("description"))),
        ("Version", plain(found.get("version"))),
        ("Phase", phase_of(found)),
        ("Intent", plain(found.get("intent")) + _note(found.get("paused_reason"))),
        ("Reason", reason_of(found)),
        ("Hosts", plain(found.get("hosts"))),
        ("Nodes", on_nodes(found)),
        ("Provides", _capabilities(found.get("provides"), "version")),
        ("Requires", _capabilities(found.get("requires"), "version_range")),
        *extension_rows(found.get("extensions") or ()),
        *([("Page", plain(found["frontend"].get("title")))] if found.get("frontend") else []),
        ("SHA-256", plain(found.get("sha256"))),
        ("Size", size_text(found.get("size"))),
        ("Signature", _signature(found.get("signature"))),
        ("Settings", plain(_cut(found.get("settings") or {}))),
        *taken_rows(schema or {}),
        ("Installed", plain(found.get("installed_at"))),
        ("Updated", plain(found.get("updated_at"))),
    ]
    if live:
        rows += [
            ("Process", plain(live.get("pid"))),
            ("CPU seconds", plain(live.get("cpu_seconds"))),
            ("Memory", size_text(live.get("memory_bytes"))),
            ("Threads", plain(live.get("threads"))),
            (
                "Calls",
                f"{live.get('calls', 0)}, {live.get('failures', 0)} failed, {live.get('overruns', 0)} late",
            ),
            *(("Route", route) for route in live.get("routes") or ()),
            *(("Command", command) for command in live.get("commands") or ()),
            *(("Task", task) for task in live.get("tasks") or ()),
            *(("Subscription", type) for type in live.get("subscriptions") or ()),
            *(("Its log", line) for line in (live.get("log") or ())[-8:]),
        ]
    failure = found.get("failure") or {}
    if failure:
        rows.append(("Failure", plain(failure.get("message") or failure.get("reason"))))
        rows += [("", line) for line in str(failure.get("traceback") or "").splitlines()[-12:]]
        rows += [("Its log", line) for line in (failure.get("log") or ())[-8:]]
    rows += [("History", _step(step)) for step in (found.get("history") or ())[-8:]]
    return rows


def needed_how(optional: bool, source: object) -> str:
    """` (optional, from controller)`, or nothing."""
    return _note(", ".join((["optional"] if optional else []) + ([f"from {source}"] if source else [])))


def taken_rows(schema: Item) -> list[tuple[str, str]]:
    """One row for each setting that a JSON Schema names: name, type, default, and what is allowed. One that names
    none is shown as it is."""
    properties = schema.get("properties")
    needed = schema.get("required") or ()
    if not isinstance(properties, dict) or not properties:
        return [("Takes", f"what fits {_value(schema)}")] if schema else []
    return [("Takes", _setting(str(name), each, name in needed)) for name, each in properties.items()]


def _cut(settings: Item) -> Item:
    """Long values would hide the rest; `corral module config` has them whole."""
    return {key: shortened(plain(value), _SETTING_MAX) for key, value in settings.items()}


def _setting(name: str, schema: object, needed: bool) -> str:
    if not isinstance(schema, dict):
        return name
    kind = schema.get("type")
    words = ["|".join(map(str, kind)) if isinstance(kind, list) else str(kind)] if kind else []
    if "enum" in schema:
        words.append("one of " + ", ".join(_value(each) for each in schema["enum"]))
    if "const" in schema:
        words.append(f"only {_value(schema['const'])}")
    words += [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    words += [f"default {_value(schema['default'])}"] if "default" in schema else []
    words += ["required"] if needed else []
    description = f"; {schema['description']}" if schema.get("description") else ""
    return f"{name}: " + (", ".join(words) or "anything") + description


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _note(text: object) -> str:
    return f" ({text})" if text else ""


def _capabilities(items: object, version: str) -> str:
    if not isinstance(items, list):
        return "-"
    texts = [
        f"{item.get('id')} {item.get(version) or item.get('version') or ''}".strip()
        + needed_how(bool(item.get("optional")), item.get("from"))
        for item in items
    ]
    return plain(texts)


def _signature(found: Item | None) -> str:
    if not found:
        return "none"
    if not found.get("identity") and not found.get("key_sha256"):
        return f"{found.get('kind')}, not verified: no trust root is configured"
    who = found.get("identity") or f"key {str(found.get('key_sha256'))[:12]}"
    return f"{found.get('kind')} by {who}" + (" (legacy)" if found.get("legacy") else "")


def _step(step: Item) -> str:
    start = step.get("from") or "-"
    return f"{step.get('at')}  {start} -> {step.get('to')}{_note(step.get('reason'))}"


def extension_rows(extensions: Iterable[Item]) -> list[tuple[str, str]]:
    """A row for each extension, and one for each of its variants."""
    rows = []
    for each in extensions:
        rivals = ", ".join(each.get("conflicts") or ())
        apart = f"; not together with {rivals}" if rivals else ""
        rows.append(("Extension", f"{each.get('id')} ({each.get('activation')}){apart}"))
        rows += [("", _variant(variant)) for variant in each.get("variants") or ()]
    return rows


def extension_items(manifest: Manifest) -> list[Item]:
    """The extensions of a manifest in the words of the API."""
    from msgspec.structs import asdict

    return [
        {**asdict(each), "variants": [asdict(variant) for variant in each.variants]}
        for each in manifest.extensions
    ]


def _variant(found: Item) -> str:
    platforms = ", ".join(found.get("platforms") or ()) or "any program"
    place = str(found.get("install_path"))
    text = f"  {found.get('id')}: for {platforms} {found.get('version_range')}, as {place}"
    return text + _doubt(str(found.get("file")), place)


def _doubt(file: str, place: str) -> str:
    """A directory is easily given where a file's name belongs."""
    ending = posixpath.splitext(file)[1]
    if ending and not posixpath.splitext(place)[1]:
        return f" (a file of that name, not a directory: is '{place}/{posixpath.basename(file)}' meant?)"
    return ""
