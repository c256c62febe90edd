"""`corral context`: the controllers that this command line knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import click

from corral.cli.api import context_store
from corral.cli.api.client import Client
from corral.cli.terminal.output import Column, output_option, show_done, show_list, show_one
from corral.cli.token_options import given_token, token_options, warn_of_command_line


def _token(context: Mapping[str, object]) -> str:
    if not context["has_token"]:
        return "no"
    return "of a session" if context["has_session"] else "yes"


COLUMNS: Final = (
    Column("CURRENT", lambda context: "*" if context["current"] else ""),
    Column("NAME", "name"),
    Column("URL", "url"),
    Column("TOKEN", _token),
)

ca_option: Final = click.option(
    "--ca",
    "--ca-file",
    "ca_file",
    envvar="CORRAL_CA",
    default="",
    metavar="FILE",
    help="Certificate of the authority of an https address (CORRAL_CA).",
)


@click.group()
def context() -> None:
    """Controllers this command line knows. Tokens are never printed."""


def _load() -> context_store.Contexts:
    return context_store.load(context_store.default_path(os.environ))


def _shape(known: context_store.Contexts, name: str) -> dict[str, object]:
    found = known.find(name)
    return {
        "name": name,
        "url": found.url,
        "ca_file": found.ca_file,
        "has_token": bool(found.token),
        "has_session": found.is_session,
        "current": name == known.current,
    }


@context.command("list")
@output_option
def list_contexts(output: str) -> None:
    """List them; a star marks the one in use."""
    known = _load()
    show_list(output, [_shape(known, name) for name in sorted(known.known)], columns=COLUMNS, name="name")


@context.command()
@click.argument("name", required=False)
@output_option
def show(name: str | None, output: str) -> None:
    """Show one, or the one in use."""
    known = _load()
    found = _shape(known, name or known.current)
    rows = [
        ("Name", str(found["name"])),
        ("Url", str(found["url"])),
        ("CA file", str(found["ca_file"] or "-")),
        ("Token", _token(found)),
        ("In use", "yes" if found["current"] else "no"),
    ]
    show_one(output, found, rows=rows, name="name")


@context.command()
@click.argument("name")
@output_option
def use(name: str, output: str) -> None:
    """Use this one from now on."""
    known = _load()
    known.find(name)
    known.current = name
    known.save()
    show_done(output, _shape(known, name), f"using '{name}' at {known.find(name).url}", name="name")


@context.command()
@click.argument("name")
@click.argument("url")
@token_options
@ca_option
@output_option
def add(name: str, url: str, token: str | None, token_file: str | None, ca_file: str, output: str) -> None:
    """Remember a controller, or change what is remembered. The token is not checked, as 'login' does."""
    warn_of_command_line(token)
    text = given_token(token, token_file) or ""
    checked = Client(url=url, token=text or None)
    known = _load()
    known.known[name] = context_store.Context(
        url=checked.url,
        token=text.strip(),
        ca_file=os.path.abspath(ca_file) if ca_file else "",  # noqa: PTH100
    )
    known.current = known.current or name
    known.save()
    show_done(output, _shape(known, name), f"remembered '{name}' at {checked.url}", name="name")


@context.command()
@click.argument("name")
@output_option
def remove(name: str, output: str) -> None:
    """Forget a controller and its token.

    The token stays valid; 'corral logout' also ends a session.
    """
    known = _load()
    gone = _shape(known, name)
    del known.known[name]
    if known.current == name:
        known.current = ""
    known.save()
    show_done(output, gone, f"forgot '{name}'", name="name")
