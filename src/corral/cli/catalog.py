"""`corral catalog`: the programs that groups name by platform and version."""

from __future__ import annotations

import hashlib
import pathlib
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, Item, plain, show_done, show_list, show_one
from corral.cli.terminal.values import age, size_text

CATALOG: Final = "/api/v1/catalog"
CATEGORIES: Final = ("server", "proxy")
FORMATS: Final = ("paper", "spigot", "velocity", "bungeecord", "geyser")

COLUMNS: Final = (
    Column("PLATFORM", "platform"),
    Column("VERSION", "version"),
    Column("FILE", "file"),
    Column("SIZE", lambda found: size_text(found["size"]) if found.get("size") else "-"),
    Column("SHA-256", lambda found: str(found.get("sha256", ""))[:12]),
    Column("FROM", lambda found: found.get("url") or "uploaded"),
    Column("UPDATED", lambda found: age(found.get("updated_at"))),
)


def _path(platform: str, version: str) -> str:
    return f"{CATALOG}/{segment(platform)}/{segment(version)}"


@click.group(cls=Noun)
def catalog() -> None:
    """The programs that groups name by platform and version."""


@catalog.command("list")
@api_command
def list_catalog(session: ApiSession) -> None:
    """List the catalog."""
    found = session.client.pages(CATALOG)
    if session.output == "name":
        found = [{"id": _id(entry)} for entry in found]
    show_list(session.output, found, columns=COLUMNS)


def _id(entry: Item) -> str:
    return f"{entry.get('platform')}/{entry.get('version')}"


@catalog.command("show")
@click.argument("platform")
@click.argument("version")
@api_command
def show_entry(session: ApiSession, platform: str, version: str) -> None:
    """Show one entry."""
    found = session.client.get(_path(platform, version))
    if session.output == "name":
        found = {"id": _id(found)}
    show_one(session.output, found, rows=_rows(found))


def _rows(found: Item) -> list[tuple[str, str]]:
    return [
        ("Platform", plain(found.get("platform"))),
        ("Version", plain(found.get("version"))),
        ("File", plain(found.get("file"))),
        ("From", plain(found.get("url") or "uploaded")),
        ("SHA-256", plain(found.get("sha256"))),
        ("Size", size_text(found["size"]) if found.get("size") else "-"),
        ("Category", plain(found.get("category"))),
        ("Config format", plain(found.get("config_format"))),
        ("Description", plain(found.get("description"))),
        ("Updated", plain(found.get("updated_at"))),
    ]


@catalog.command("add")
@click.argument("platform")
@click.argument("version")
@click.option("--from", "source", metavar="URL", help="Where nodes download it; needs --sha256.")
@click.option("--sha256", metavar="DIGEST", help="What it must be.")
@click.option("--file", "path", metavar="FILE", help="Upload this file instead.")
@click.option("--name", metavar="NAME", help="Its file name; else that of FILE or URL.")
@click.option("--category", type=click.Choice(CATEGORIES), help="What kind of program it is.")
@click.option(
    "--config-format", type=click.Choice(FORMATS), help="Label: whose configuration files it reads."
)
@click.option("--description", metavar="TEXT", help="What it is.")
@click.option("--replace", is_flag=True, help="Also when there is an entry of this name already.")
@api_command
def add(
    session: ApiSession,
    platform: str,
    version: str,
    source: str | None,
    sha256: str | None,
    path: str | None,
    name: str | None,
    category: str | None,
    config_format: str | None,
    description: str | None,
    replace: bool,
) -> None:
    """Add a program, by its URL and digest or by uploading it."""
    if (source is None) == (path is None):
        raise WrongUsage("give either --from with --sha256, or --file")
    about = {"category": category, "config_format": config_format, "description": description}
    about = {key: value for key, value in about.items() if value}
    if not replace:
        _refuse_another(session, platform, version)
    if path is not None:
        made = _upload(session, platform, version, path, name, sha256, about)
    else:
        if not sha256:
            raise WrongUsage("a URL needs the digest of what is there", hint="add --sha256 DIGEST")
        file = name or _file_name(str(source))
        body = {"file": file, "url": source, "sha256": sha256.lower(), **about}
        made = session.client.put(_path(platform, version), body)
    sentence = f"'{platform} {version}' is in the catalog as {made['file']}"
    show_done(session.output, {"id": _id(made)} if session.output == "name" else made, sentence)


def _refuse_another(session: ApiSession, platform: str, version: str) -> None:
    """Groups that name an entry would start something else from now on: that has to be meant."""
    try:
        found = session.client.get(_path(platform, version))
    except CommandRefused as refusal:
        if refusal.status != 404:
            raise
        return
    raise CommandRefused(
        f"'{platform} {version}' is in the catalog already, as {found.get('file')}",
        hint="add --replace to put this in its place",
        code="ALREADY_EXISTS",
    )


def _file_name(url: str) -> str:
    """The last part of a URL's path."""
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        path = ""
    name = path.rpartition("/")[2]
    if not name:
        raise WrongUsage(f"'{url}' ends with no file name", hint="add --name, such as --name server.jar")
    return name


def _upload(
    session: ApiSession,
    platform: str,
    version: str,
    path: str,
    name: str | None,
    sha256: str | None,
    about: dict[str, Any],
) -> Any:
    """The digest is computed here, so that what arrives is what was meant."""
    from corral.cli.api.transfers import blocks
    from corral.cli.terminal.progress_line import Bar

    source = pathlib.Path(path).expanduser()
    try:
        file = source.open("rb")
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    with file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 and sha256.lower() != digest:
            raise WrongUsage(f"{path} has digest {digest}, not {sha256}")
        size = file.tell()
        file.seek(0)
        params = {"name": name or source.name, "sha256": digest, **about}
        with Bar(f"uploading {source.name}", size) as bar:
            return session.client.upload(
                f"{_path(platform, version)}/file", blocks(file, bar), size=size, params=params
            )


@catalog.command("remove")
@click.argument("platform")
@click.argument("version")
@yes_option
@api_command
def remove(session: ApiSession, platform: str, version: str, yes: bool) -> None:
    """Remove an entry; refused while a group is made of it."""
    confirm(f"remove '{platform} {version}' from the catalog", yes=yes)
    session.client.delete(_path(platform, version))
    show_done(session.output, {"id": f"{platform}/{version}"}, f"'{platform} {version}' is removed")
