"""`corral user totp`: the second factor, one's own, and the lost one of somebody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage, note, report
from corral.cli.password_login import ASKED, second_factor
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import show_done
from corral.cli.terminal.prompts import ask, is_terminal, password, password_file_option
from corral.cli.token_options import warn_of_recovery_code
from corral.cli.user_credentials import USERS, require_login

F = TypeVar("F", bound=Callable[..., Any])
OWN: Final = "/api/v1/auth/totp"


def _recovery_code(what: str) -> Callable[[F], F]:
    return click.option(
        "--recovery-code",
        is_flag=False,
        flag_value=ASKED,
        metavar="[CODE]",
        help=f"{what}; without CODE you are asked.",
    )


@click.group(cls=Noun)
def totp() -> None:
    """The second factor: codes of an authenticator app."""


@totp.command()
@password_file_option
@api_command
def enable(session: ApiSession, password_file: str | None) -> None:
    """Set up your own; logins need a code from then on."""
    me = require_login(session.client)
    if not is_terminal():
        raise WrongUsage("an app has to be set up, and there is no terminal to show its secret on")
    setup = session.client.post(OWN, {"password": password(password_file)})
    note("Add this to an authenticator app, by its secret or by the address as a QR code:")
    note(f"  secret:  {setup.get('secret')}")
    note(f"  address: {setup.get('uri')}")
    codes = _confirmed(session, str(setup.get("setup")))
    _show_codes(session, codes, f"user '{me['user']}' has a second factor. ")


def _confirmed(session: ApiSession, setup: str) -> Any:
    while True:
        code = ask("Code that the app shows now", instead="")
        try:
            return session.client.post(f"{OWN}/confirm", {"setup": setup, "code": code})
        except CommandRefused as refusal:
            if refusal.field != "code":
                raise
            report(refusal.message, hint=refusal.hint)


def _show_codes(session: ApiSession, made: Any, sentence: str) -> None:
    codes = list(made.get("codes", ()))
    if session.output in ("table", "name"):
        note(f"{sentence}Keep these recovery codes, each good for one login without the app;")
        note("they are shown this once, and earlier ones are void:")
        click.echo("\n".join(codes))
    else:
        show_done(session.output, {"codes": codes}, "")


@totp.command()
@click.argument("user", required=False, metavar="[NAME]")
@password_file_option
@_recovery_code("Your own: a recovery code in place of the app's")
@yes_option
@api_command
def remove(
    session: ApiSession, user: str | None, password_file: str | None, recovery_code: str | None, yes: bool
) -> None:
    """Remove your own, or that of a user who has lost it."""
    warn_of_recovery_code(recovery_code)
    if user is None:
        me = require_login(session.client)
        shown = {"password": password(password_file), **second_factor(recovery_code)}
        session.client.post(f"{OWN}/remove", shown)
        show_done(
            session.output, {"name": me["user"]}, f"user '{me['user']}' has no second factor", name="name"
        )
        return
    if password_file is not None or recovery_code is not None:
        raise WrongUsage("a password or a code is asked for your own second factor", hint="leave NAME out")
    confirm(f"remove the second factor of user '{user}'", yes=yes)
    made = session.client.delete(f"{USERS}/{segment(user)}/totp")
    show_done(session.output, made, f"user '{user}' has no second factor", name="name")


@totp.command("recovery-codes")
@password_file_option
@_recovery_code("A recovery code in place of the app's")
@api_command
def recovery_codes(session: ApiSession, password_file: str | None, recovery_code: str | None) -> None:
    """Make new recovery codes; the earlier ones are void."""
    warn_of_recovery_code(recovery_code)
    require_login(session.client)
    shown = {"password": password(password_file), **second_factor(recovery_code)}
    made = session.client.post("/api/v1/auth/recovery-codes", shown)
    _show_codes(session, made, "")
