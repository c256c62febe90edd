"""`corral template upload|export|files|cat|put|rm|edit`: the files of templates, to and fro."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any, Final

import click

from corral.cli.api.client import Client, Params, segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import WrongUsage, note
from corral.cli.terminal.output import Column, Item, show_done, show_list
from corral.errors import counted

TEMPLATES: Final = "/api/v1/templates"
_MODES: Final = ("644", "755", "444", "555")

FILE_COLUMNS: Final = (
    Column("MODE", lambda found: mode_text(found.get("mode"))),
    Column("SIZE", lambda found: str(found.get("size", 0))),
    Column("SHA-256", lambda found: str(found.get("digest", ""))[:12]),
    Column("PATH", "path"),
)

version_option = click.option(
    "--version", "number", type=click.IntRange(1), metavar="N", help="Of this version; else the current one."
)
note_option = click.option("--note", metavar="TEXT", help="What is new; shown with the version.")
mode_option = click.option("--mode", type=click.Choice(_MODES), help="Its mode; else as it was, or 644.")


def mode_text(mode: Any) -> str:
    return f"{mode:o}" if isinstance(mode, int) else str(mode or "-")


def template_path(name: str, *more: str) -> str:
    """The address of a template, or of something in it."""
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        raise WrongUsage(f"'{name}' is no template name", hint="it is NAME or GROUP/NAME")
    place = "/".join([TEMPLATES, *map(segment, parts)])
    return "/".join([place, "-", *more]) if more else place


def file_path(name: str, path: str) -> str:
    return template_path(name, "files", *(segment(part) for part in path.split("/")))


@click.command("upload")
@click.argument("name")
@click.argument("source", metavar="DIRECTORY|ARCHIVE")
@note_option
@api_command
def upload(session: ApiSession, name: str, source: str, note: str | None) -> None:
    """Upload a directory or an archive as a new version. The archive is a .tar.gz or a .zip."""
    made = send_template(session.client, name, source, note=note)
    same = ", as before" if made.get("unchanged") else f" with {counted(made['files'], 'file')}"
    show_done(session.output, made, f"template '{name}' is at version {made['version']}{same}", name="name")


def send_template(client: Client, name: str, source: str, *, note: str | None) -> Any:
    """Upload a directory or an archive as the next version of a template."""
    from corral.cli.api.transfers import archive_of, blocks
    from corral.cli.terminal.progress_line import Bar

    place = template_path(name)
    with archive_of(source) as (file, size, kind), Bar(f"uploading {name}", size) as bar:
        return client.upload(place, blocks(file, bar), size=size, content_type=kind, params={"note": note})


@click.command("export")
@click.argument("name")
@click.argument("target", required=False, metavar="[FILE]")
@version_option
@click.option("--format", "kind", type=click.Choice(("tar.gz", "zip")), help="Else by FILE's ending.")
@api_command
def export(session: ApiSession, name: str, target: str | None, number: int | None, kind: str | None) -> None:
    """Save a version as an archive; '-' writes to stdout."""
    from corral.cli.api.transfers import save

    kind = kind or ("zip" if (target or "").endswith(".zip") else "tar.gz")
    target = target or f"{name.replace('/', '-')}.{kind}"
    response = session.client.download(template_path(name, "export"), {"version": number, "format": kind})
    size = save(response, target, what=f"exporting {name}")
    note(f"{counted(size, 'byte')} of template '{name}' are in {'stdout' if target == '-' else target}")


@click.command("files")
@click.argument("name")
@version_option
@api_command
def files(session: ApiSession, name: str, number: int | None) -> None:
    """List the files of a version."""
    found = session.client.pages(template_path(name, "files"), {"version": number})
    show_list(session.output, found, columns=FILE_COLUMNS, name="path")


@click.command("cat")
@click.argument("name")
@click.argument("path")
@click.argument("target", required=False, default="-", metavar="[FILE]")
@version_option
@api_command
def get_file(session: ApiSession, name: str, path: str, target: str, number: int | None) -> None:
    """Write one file of a template to stdout, or into FILE."""
    from corral.cli.api.transfers import save

    response = session.client.download(file_path(name, path), {"version": number})
    save(response, target, what=path)


@click.command("put")
@click.argument("name")
@click.argument("path")
@click.argument("source", metavar="FILE")
@mode_option
@note_option
@api_command
def put_file(
    session: ApiSession, name: str, path: str, source: str, mode: str | None, note: str | None
) -> None:
    """Put FILE at PATH into a template; makes a new version."""
    made = _put(session, name, path, pathlib.Path(source).expanduser(), {"mode": mode, "note": note})
    show_done(session.output, made, _changed(name, made), name="name")


def _changed(name: str, made: Item) -> str:
    same = ", as before" if made.get("unchanged") else ""
    return f"template '{name}' is at version {made['version']}{same}"


def _put(
    session: ApiSession, name: str, path: str, source: pathlib.Path, params: Params, *, revision: int = 0
) -> Any:
    """Send a file as it is read. With `revision`: only if the template is still that one."""
    from corral.cli.api.transfers import blocks
    from corral.cli.terminal.progress_line import Bar

    try:
        file = source.open("rb")
        size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise WrongUsage(f"cannot read {source}: {error.strerror}") from error
    with file, Bar(f"uploading {path}", size) as bar:
        return session.client.upload(
            file_path(name, path), blocks(file, bar), size=size, params=params, revision=revision
        )


@click.command("rm")
@click.argument("name")
@click.argument("path")
@api_command
def remove_file(session: ApiSession, name: str, path: str) -> None:
    """Take one file out of a template; makes a new version."""
    made = session.client.delete(file_path(name, path))
    show_done(session.output, made, _changed(name, made), name="name")


@click.command("edit")
@click.argument("name")
@click.argument("path")
@note_option
@api_command
def edit_file(session: ApiSession, name: str, path: str, note: str | None) -> None:
    """Open one file in your editor (VISUAL, EDITOR). What you save becomes a new version.

    Refused when the template was changed meanwhile; what you wrote is then kept in a file.
    """
    from corral.cli.api.transfers import save
    from corral.cli.terminal.editor import kept_text, run_editor

    found = session.client.get(template_path(name))
    with tempfile.TemporaryDirectory(prefix="corral-edit-") as directory:
        file = pathlib.Path(directory) / pathlib.PurePosixPath(path).name
        response = session.client.download(file_path(name, path), {"version": found["version"]})
        save(response, str(file), what=path)
        before = file.read_bytes()
        with kept_text(file, before=before):
            run_editor(file)
            if file.read_bytes() == before:
                show_done(session.output, {**found, "unchanged": True}, "nothing was changed", name="name")
                return
            made = _put(session, name, path, file, {"note": note}, revision=found["revision"])
    show_done(session.output, made, _changed(name, made), name="name")
