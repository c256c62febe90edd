"""`corral template`: versioned file trees that instances are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage
from corral.cli.template_files import (
    TEMPLATES,
    edit_file,
    export,
    files,
    get_file,
    mode_text,
    put_file,
    remove_file,
    template_path,
    upload,
)
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, Item, plain, show_done, show_list, show_one
from corral.cli.terminal.values import age, pairs, size_text

SYNC_SECONDS: Final = 330.0

COLUMNS: Final = (
    Column("NAME", "name"),
    Column("VERSION", lambda found: str(found.get("version", ""))),
    Column("FILES", lambda found: str(found.get("files", 0))),
    Column("SIZE", lambda found: size_text(found.get("size"))),
    Column("UPDATED", lambda found: age(found.get("updated_at"))),
    Column("USED BY", "used_by"),
    Column("NOTE", "note"),
)
VERSION_COLUMNS: Final = (
    Column("VERSION", lambda found: str(found.get("number", ""))),
    Column("CURRENT", lambda found: "*" if found.get("current") else ""),
    Column("FILES", lambda found: str(found.get("files", 0))),
    Column("SIZE", lambda found: size_text(found.get("size"))),
    Column("CREATED", lambda found: age(found.get("created_at"))),
    Column("BY", "created_by"),
    Column("NOTE", "note"),
    Column("HASH", lambda found: str(found.get("hash", ""))[:12]),
)
DIFF_COLUMNS: Final = (
    Column("CHANGE", "change"),
    Column("PATH", "path"),
    Column("FROM", lambda found: plain(found.get("old"))),
    Column("TO", lambda found: plain(found.get("new"))),
)
SYNC_COLUMNS: Final = (
    Column("TEMPLATE", "template"),
    Column("NODE", "node"),
    Column("RESULT", lambda found: "in its cache" if found.get("ok") else "failed"),
    Column("REASON", lambda found: plain(found.get("message"))),
)


@click.group(cls=Noun)
def template() -> None:
    """Versioned file trees that instances are made of."""


@template.command("list")
@click.option("--prefix", metavar="TEXT", help="Only names that begin with this, such as 'games/'.")
@api_command
def list_templates(session: ApiSession, prefix: str | None) -> None:
    """List the templates."""
    show_list(
        session.output, session.client.pages(TEMPLATES, {"prefix": prefix}), columns=COLUMNS, name="name"
    )


@template.command("show")
@click.argument("name")
@api_command
def show_template(session: ApiSession, name: str) -> None:
    """Show one template and its settings."""
    found = session.client.get(template_path(name))
    settings = found.get("settings") or {}
    rows = [
        ("Name", plain(found.get("name"))),
        ("Version", plain(found.get("version"))),
        ("Versions kept", plain(found.get("versions"))),
        ("Hash", plain(found.get("hash"))),
        ("Files", str(found.get("files", 0))),
        ("Size", size_text(found.get("size"))),
        ("Note", plain(found.get("note"))),
        ("Description", plain(settings.get("description"))),
        ("Parents", plain(settings.get("parents"))),
        ("Variables", plain(settings.get("variables"))),
        ("Substituted in", plain(settings.get("substitute"))),
        ("Used by", plain(found.get("used_by"))),
        ("Created", plain(found.get("created_at"))),
        ("Updated", plain(found.get("updated_at"))),
        ("Revision", plain(found.get("revision"))),
    ]
    show_one(session.output, found, rows=rows, name="name")


@template.command("versions")
@click.argument("name")
@api_command
def list_versions(session: ApiSession, name: str) -> None:
    """List the versions that are kept."""
    found = session.client.pages(template_path(name, "versions"))
    show_list(session.output, found, columns=VERSION_COLUMNS, name="number")


@template.command("diff")
@click.argument("name")
@click.argument("old", type=click.IntRange(1), required=False)
@click.argument("new", type=click.IntRange(1), required=False)
@api_command
def diff(session: ApiSession, name: str, old: int | None, new: int | None) -> None:
    """Show what changed from version OLD to NEW. Without them, from the one before to the current one."""
    found = session.client.get(template_path(name, "diff"), {"from": old, "to": new})
    rows = list(_differences(found))
    if session.output == "table" and not rows:
        click.echo("no difference")
    elif session.output in ("table", "name"):
        show_list(session.output, rows, columns=DIFF_COLUMNS, name="path")
    else:
        show_done(session.output, found, "")


def _differences(found: Item) -> Iterator[dict[str, str]]:
    """A line for each file, directory and setting that differs."""
    for file in found.get("added", ()):
        yield {"change": "added", "path": file["path"], "new": _state(file, "")}
    for file in found.get("removed", ()):
        yield {"change": "removed", "path": file["path"], "old": _state(file, "")}
    for file in found.get("changed", ()):
        old, new = _state(file, "old_"), _state(file, "new_")
        yield {"change": "changed", "path": file["path"], "old": old, "new": new}
    for change, key in (("added", "added_directories"), ("removed", "removed_directories")):
        for path in found.get(key, ()):
            yield {"change": change, "path": f"{path}/"}
    for setting in found.get("settings", ()):
        name, old, new = setting["field"], plain(setting.get("old")), plain(setting.get("new"))
        yield {"change": "setting", "path": name, "old": old, "new": new}


def _state(file: Item, prefix: str) -> str:
    mode = file.get(f"{prefix}mode")
    return f"{size_text(file.get(f'{prefix}size'))}, {mode_text(mode)}"


@template.command("rollback")
@click.argument("name")
@click.argument("version", type=click.IntRange(1))
@api_command
def rollback(session: ApiSession, name: str, version: int) -> None:
    """Let new starts use an earlier VERSION again."""
    changed = session.client.post(template_path(name, "rollback"), {"version": version})
    show_done(session.output, changed, f"template '{name}' is at version {changed['version']}", name="name")


@template.command("set")
@click.argument("name")
@click.option("-f", "--file", "path", metavar="FILE", help="Settings as JSON or YAML; '-' reads stdin.")
@click.option("--parent", "parents", multiple=True, metavar="NAME", help="A parent of the template.")
@click.option("--no-parents", is_flag=True, help="The template has no parent.")
@click.option("--var", "variables", multiple=True, metavar="K=V", help="A variable and its value.")
@click.option("--substitute", multiple=True, metavar="GLOB", help="Files in which %NAME% is replaced.")
@click.option("--description", metavar="TEXT", help="What it is for.")
@api_command
def set_settings(
    session: ApiSession,
    name: str,
    path: str | None,
    parents: tuple[str, ...],
    no_parents: bool,
    variables: tuple[str, ...],
    substitute: tuple[str, ...],
    description: str | None,
) -> None:
    """Change a template's settings. Makes a new version with the same files."""
    patch: dict[str, Any] = {}
    if path is not None:
        from corral.cli.document_files import read_documents

        documents = read_documents(path)
        if len(documents) > 1:
            raise WrongUsage(f"{path} holds {len(documents)} documents", hint="settings are one")
        patch = documents[0]
    if parents or no_parents:
        patch["parents"] = list(parents)
    if variables:
        patch["variables"] = pairs(variables)
    if substitute:
        patch["substitute"] = list(substitute)
    if description is not None:
        patch["description"] = description
    if not patch:
        raise WrongUsage("nothing is to be changed", hint="give --parent, --var, --substitute or --file")
    changed = session.client.patch(template_path(name), {"settings": patch})
    show_done(session.output, changed, f"template '{name}' is at version {changed['version']}", name="name")


@template.command("sync")
@click.argument("pattern")
@click.option("--node", "nodes", multiple=True, metavar="ID", help="Only to this node; may be repeated.")
@api_command
def sync(session: ApiSession, pattern: str, nodes: tuple[str, ...]) -> int:
    """Bring matching templates (games/*) into the caches of nodes. Their current versions are taken."""
    import fnmatch

    names = [found["name"] for found in session.client.pages(TEMPLATES)]
    matching = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not matching:
        raise CommandRefused(f"no template matches '{pattern}'", hint="see 'corral template list'")
    results: list[dict[str, Any]] = []
    for name in matching:
        body = {"nodes": list(nodes)} if nodes else {}
        answer = session.client.post(template_path(name, "sync"), body, timeout=SYNC_SECONDS)
        results += [{"template": name, **item} for item in answer["items"]]
    show_list(session.output, results, columns=SYNC_COLUMNS, name="node")
    return 0 if all(item.get("ok") for item in results) else 1


@template.command("delete")
@click.argument("name")
@yes_option
@api_command
def delete(session: ApiSession, name: str, yes: bool) -> None:
    """Delete a template with all its versions. Refused while something is made of it."""
    confirm(f"delete template '{name}' with all its versions", yes=yes)
    session.client.delete(template_path(name))
    show_done(session.output, {"name": name}, f"template '{name}' is deleted", name="name")


for extra in (upload, export, files, get_file, put_file, remove_file, edit_file):
    template.add_command(extra)
template.add_command(upload, "import")
