"""`corral instance plan|save`: what an instance was made of, and a template made of an instance."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from corral.cli.client import segment
from corral.cli.instance_waits import INSTANCES
from corral.cli.output import plain, show_done, show_one
from corral.cli.session import Session, api_command
from corral.cli.values import counted

SAVE_SECONDS: Final = 630.0


@click.command()
@click.argument("id")
@api_command
def plan(session: Session, id: str) -> None:
    """Show what exactly an instance was started with."""
    found = session.client.get(f"{INSTANCES}/{segment(id)}/plan")
    body = found.get("plan") or {}
    head = [("Hash", plain(found.get("hash"))), ("Drawn", plain(found.get("picks")))]
    shown = [*head, *((key, _text(value)) for key, value in body.items())]
    show_one(session.output, found, rows=shown, name="hash")


def _text(value: Any) -> str:
    if isinstance(value, dict | list) and value:
        return json.dumps(value, ensure_ascii=False)
    return plain(value)


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
@api_command
def save(
    session: Session, id: str, template: str, paths: tuple[str, ...], merge: bool, note: str | None
) -> None:
    """Make chosen files of an instance's directory a new version of TEMPLATE."""
    body = {"template": template, "paths": list(paths), "merge": merge, "note": note or ""}
    made = session.client.post(f"{INSTANCES}/{segment(id)}/save", body, timeout=SAVE_SECONDS)
    show_done(
        session.output,
        made,
        f"template '{template}' is at version {made['version']} with {counted(made['files'], 'file')}",
        name="name",
    )
