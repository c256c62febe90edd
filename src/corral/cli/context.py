"""`corral login`, `corral logout` and `corral context`: the controllers that this command line knows."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from corral.cli.api import context_store
from corral.cli.api.client import Client
from corral.cli.failure import Unreachable, WrongUsage
from corral.cli.terminal.output import Column, output_option, show_done, show_list, show_one
from corral.cli.token_options import given_token, token_options, warn_of_command_line

COLUMNS: Final = (
    Column("CURRENT", lambda context: "*" if context["current"] else ""),
    Column("NAME", "name"),
    Column("URL", "url"),
    Column("TOKEN", lambda context: "yes" if context["has_token"] else "no"),
)


_ca_option: Final = click.option(
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
        ("Token", "yes" if found["has_token"] else "no"),
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
@_ca_option
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
    """Forget a controller and its token. The token itself stays valid."""
    known = _load()
    gone = _shape(known, name)
    del known.known[name]
    if known.current == name:
        known.current = ""
    known.save()
    show_done(output, gone, f"forgot '{name}'", name="name")


@click.command()
@click.argument("url")
@token_options
@click.option("--name", metavar="NAME", help="Name to remember it by; the host and port if left out.")
@_ca_option
@output_option
@click.pass_context
def login(
    ctx: click.Context,
    url: str,
    token: str | None,
    token_file: str | None,
    name: str | None,
    ca_file: str,
    output: str,
) -> None:
    """Check a token with the controller at URL and remember both.

    Without --token-file it is taken from CORRAL_TOKEN; otherwise you are asked for it.
    """
    above = (ctx.obj or {}).get("token")
    warn_of_command_line(token)
    text = given_token(token, token_file) or above or os.environ.get("CORRAL_TOKEN") or _ask()
    authority = os.path.abspath(ca_file) if ca_file else ""  # noqa: PTH100
    client = Client(url=url, token=text, ca_file=authority or None)
    me = _who(client)
    known = context_store.load(context_store.default_path(os.environ))
    chosen = name or client.url.split("://", 1)[1]
    known.known[chosen] = context_store.Context(url=client.url, token=text.strip(), ca_file=authority)
    known.current = chosen
    known.save()
    result = {"name": chosen, "url": client.url, "as": me["name"], "role": me["role"]}
    show_done(output, result, f"logged in to {client.url} as '{me['name']}' ({me['role']})", name="name")


def _who(client: Client) -> dict[str, str]:
    """Name and role of the token; the controller refuses one that it does not know."""
    try:
        answer = client.get("/api/v1/auth/me")
    finally:
        client.close()
    found = answer.get("token", answer) if isinstance(answer, dict) else None
    if not isinstance(found, dict) or "role" not in found:
        raise Unreachable(f"{client.url} does not answer like a Corral controller", hint="check the address")
    return {"name": str(found.get("name", "")), "role": str(found["role"])}


def _ask() -> str:
    if not sys.stdin.isatty():
        raise WrongUsage(
            "no token was given", hint="use --token-file or CORRAL_TOKEN; there is no terminal to ask on"
        )
    text: str = click.prompt("API token", hide_input=True, err=True)
    return text


@click.command()
@click.argument("name", required=False)
@output_option
def logout(name: str | None, output: str) -> None:
    """Forget a controller, or the one in use, and its token. The token itself stays valid."""
    known = context_store.load(context_store.default_path(os.environ))
    chosen = name or known.current
    if not chosen:
        raise WrongUsage("no context is in use", hint="name one; 'corral context list' shows them")
    gone = known.find(chosen)
    del known.known[chosen]
    if known.current == chosen:
        known.current = ""
    known.save()
    hint = "revoke the token with 'corral token revoke' if nobody else uses it"
    show_done(
        output, {"name": chosen, "url": gone.url}, f"forgot '{chosen}' ({gone.url}); {hint}", name="name"
    )
