"""The controller and token of a command: flags, then environment, then the chosen context.

A context's token is used with that context's address only: naming another address never
sends it somewhere else. An address that is named without a token is used with the login that is remembered for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import click

from corral.cli.api import context_store
from corral.cli.api.client import TIMEOUT_SECONDS, Client
from corral.cli.failure import WrongUsage
from corral.cli.terminal.output import output_option
from corral.cli.token_options import given_token, token_options

R = TypeVar("R")


class ApiSession:
    """One command's connection and the form of its output."""

    def __init__(self, *, client: Client, output: str) -> None:
        self.client = client
        self.output = output


def api_command(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `-o`, `--url`, `--token-file`, `--context`, and an `ApiSession` as first argument."""

    @functools.wraps(command)
    def call(
        *args: Any,
        url: str | None,
        token: str | None,
        token_file: str | None,
        context: str | None,
        output: str,
        **kwargs: Any,
    ) -> R:
        with opened_session(
            url=url, token=token, token_file=token_file, context=context, output=output
        ) as session:
            return command(session, *args, **kwargs)

    return api_options(call)


@contextlib.contextmanager
def opened_session(
    *, url: str | None, token: str | None, token_file: str | None, context: str | None, output: str
) -> Iterator[ApiSession]:
    """A session by the values of `api_options`; the connection of a console, if nothing else is named."""
    above: Mapping[str, Any] = click.get_current_context().obj or {}
    named = (
        url
        or token
        or token_file
        or context
        or above.get("url")
        or above.get("token")
        or above.get("context")
    )
    if above.get("client") is not None and not named:
        yield ApiSession(client=above["client"], output=output)
        return
    client = connect(
        url=url or above.get("url"),
        token=given_token(token, token_file) or above.get("token"),
        context=context or above.get("context"),
        environment=os.environ,
    )
    try:
        yield ApiSession(client=client, output=output)
    finally:
        client.close()


def api_options(call: Callable[..., R]) -> Callable[..., R]:
    """`-o`, `--url`, `--token-file`, `--context`, for a command that opens its session itself, or none."""
    for option in (
        click.option("--context", metavar="NAME", help="Remembered controller to use."),
        token_options,
        click.option("--url", metavar="URL", help="Controller to talk to."),
        output_option,
    ):
        call = option(call)
    return call


def connect(
    *,
    url: str | None,
    token: str | None,
    context: str | None,
    environment: Mapping[str, str],
    timeout: float = TIMEOUT_SECONDS,
) -> Client:
    """A client for the chosen controller; nothing is sent yet."""
    token = token or environment.get("CORRAL_TOKEN") or None
    source = "--url" if url else "CORRAL_URL"
    chosen = context is not None
    if context is None:  # a context named on the command line beats an address in the environment
        url = url or environment.get("CORRAL_URL") or None
        context = environment.get("CORRAL_CONTEXT") or None
    ca_file = environment.get("CORRAL_CA") or None
    if url is not None and token is not None:
        return Client(url=url, token=token, ca_file=ca_file, timeout=timeout)
    known = context_store.load(context_store.default_path(environment))
    name = context or known.current
    if url is not None:
        logins = known.logins_at(url)
        login = logins.get(name)
        if login is None and not chosen and len(logins) == 1:
            (login,) = logins.values()
        if login is None:
            hint = _login_hint(known, name, logins, url=url, source=source)
            return Client(url=url, token=None, ca_file=ca_file, timeout=timeout, login_hint=hint)
    elif not name:
        raise WrongUsage(
            "no controller was chosen",
            hint="use 'corral login URL', --url URL or the environment's CORRAL_URL",
        )
    else:
        login = known.find(name)
    return Client(
        url=url or login.url,
        token=token or login.token,
        ca_file=ca_file or login.ca_file or None,
        timeout=timeout,
    )


def _login_hint(
    known: context_store.Contexts, name: str, logins: Collection[str], *, url: str, source: str
) -> str:
    """Why no remembered login is used at an address; empty: none is remembered."""
    if logins:
        listed = ", ".join(f"'{each}'" for each in sorted(logins))
        return f"logins are remembered for {url}: {listed}; choose one with --context NAME"
    if name not in known.known:
        return ""
    other = known.known[name].url
    aside = "run 'unset CORRAL_URL'" if source == "CORRAL_URL" else "leave --url out"
    return (
        f"{source} is {url}, and the remembered login '{name}' is for {other}; "
        f"{aside} to use it, or log in with 'corral login {url}'"
    )
