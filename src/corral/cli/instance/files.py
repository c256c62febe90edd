"""`corral instance plan|files|cat|save`: what an instance was made of, what it has, and a template of that."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import note as remark
from corral.cli.instance.runs import run_option
from corral.cli.instance.waits import INSTANCES
from corral.cli.terminal.output import Column, plain, show_done, show_list, show_one
from corral.errors import counted

SAVE_SECONDS: Final = 630.0

FILE_COLUMNS: Final = (
    Column("KIND", "kind"),
    Column("MODE", "mode"),
    Column("SIZE", lambda found: str(found.get("size", 0))),
    Column("MODIFIED", "modified_at"),
    Column("ORIGIN", lambda found: _origin(found)),
    Column("PATH", "path"),
)


def _origin(found: Any) -> str:
    """`template base v14`, `patch`, `workload`, …"""
    template = found.get("template")
    where = f" {template} v{found.get('template_version')}" if template else ""
    return f"{found.get('origin', '')}{where}"


@click.command()
@click.argument("id")
@run_option
@api_command
def plan(session: ApiSession, id: str, incarnation: int | None) -> None:
    """Show what exactly an instance was started with."""
    found = session.client.get(f"{INSTANCES}/{segment(id)}/plan", {"incarnation": incarnation})
    body = found.get("plan") or {}
    head = [("Hash", plain(found.get("hash"))), ("Drawn", plain(found.get("picks")))]
    shown = [*head, *((key, _text(value)) for key, value in body.items())]
    show_one(session.output, found, rows=shown, name="hash")


def _text(value: Any) -> str:
    if isinstance(value, dict | list) and value:
        return json.dumps(value, ensure_ascii=False)
    return plain(value)


@click.command("files")
@click.argument("id")
@click.argument("path", required=False, default="", metavar="[DIRECTORY]")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="So many entries."
)
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option(
    "--depth", type=click.IntRange(1, 201), metavar="N", help="So many levels; 1: the directory alone."
)
@click.option("--digests", is_flag=True, help="With the SHA-256 of small files.")
@api_command
def files(
    session: ApiSession, id: str, path: str, limit: int, every: bool, depth: int | None, digests: bool
) -> None:
    """List what lies in an instance's directory."""
    from corral.cli.instance.file_trees import listed

    asked = {"path": path, "depth": depth, "digests": "true" if digests else None}
    columns = (*FILE_COLUMNS[:-1], Column("DIGEST", "digest"), FILE_COLUMNS[-1]) if digests else FILE_COLUMNS
    if every:
        items = list(listed(session, id, asked))
        show_list(session.output, items, columns=columns, name="path")
        return
    found = session.client.get(f"{INSTANCES}/{segment(id)}/files", {**asked, "limit": limit})
    items = found.get("items") or []
    page = {"next": found.get("next"), "truncated": bool(found.get("truncated"))}
    show_list(session.output, items, columns=columns, name="path", page=page)
    if found.get("truncated"):
        remark(f"there is more than these {len(items)}; name a DIRECTORY, raise --limit, or use --all")


@click.command("cat")
@click.argument("id")
@click.argument("path")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="From this byte on.")
@click.option("--length", type=click.IntRange(1), metavar="N", help="So many bytes; else to the end.")
@api_command
def get_file(session: ApiSession, id: str, path: str, offset: int, length: int | None) -> None:
    """Write one of an instance's files, or a part of it, to stdout."""
    from corral.cli.api.transfers import save as save_to

    asked = {"path": path, "offset": offset or None, "length": length}
    response = session.client.download(f"{INSTANCES}/{segment(id)}/files/content", asked)
    save_to(response, "-", what=path)


@click.command()
@click.argument("id")
@click.argument("template")
@click.option(
    "--path",
    "paths",
    multiple=True,
    required=True,
    metavar="GLOB",
    help="What to take, such as 'world/**'; may be repeated.",
)
@click.option("--merge", is_flag=True, help="Keep the template's other files; else it holds only these.")
@click.option("--note", metavar="TEXT", help="What is new; shown with the version.")
@click.option(
    "--secret-names",
    is_flag=True,
    help="Put %NAME% in place of the values of secrets; else a file that holds one is refused.",
)
@api_command
def save(
    session: ApiSession,
    id: str,
    template: str,
    paths: tuple[str, ...],
    merge: bool,
    note: str | None,
    secret_names: bool,
) -> None:
    """Save files of an instance as a new version of TEMPLATE."""
    body = {"template": template, "paths": list(paths), "merge": merge, "note": note or ""}
    if secret_names:
        body["secret_names"] = True
    made = session.client.post(f"{INSTANCES}/{segment(id)}/save", body, timeout=SAVE_SECONDS)
    show_done(
        session.output,
        made,
        f"template '{template}' is at version {made['version']} with {counted(made['files'], 'file')}",
        name="name",
    )
