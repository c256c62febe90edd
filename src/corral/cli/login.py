"""`corral login` and `corral logout`."""

from __future__ import annotations

import os
import sys

import click

from corral.cli.api import context_store as contexts
from corral.cli.api.client import Client
from corral.cli.failure import Unreachable, WrongUsage
from corral.cli.terminal.output import output_option, show_done
from corral.cli.token_options import given_token, token_options, warn_of_command_line


@click.command()
@click.argument("url")
@token_options
@click.option("--name", metavar="NAME", help="Name to remember it by; the host and port if left out.")
@click.option("--ca-file", default="", metavar="FILE", help="Authority that vouches for an https address.")
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
    known = contexts.load(contexts.default_path(os.environ))
    chosen = name or client.url.split("://", 1)[1]
    known.known[chosen] = contexts.Context(url=client.url, token=text.strip(), ca_file=authority)
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
    known = contexts.load(contexts.default_path(os.environ))
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
