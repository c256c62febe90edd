"""`corral user password` and `reset-delay`: one's own password, and those of others in the hands of an administrator."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

import click

from corral.cli.api import context_store
from corral.cli.api.client import Client, segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandFailure, CommandRefused, WrongUsage
from corral.cli.login import end_session
from corral.cli.terminal.output import show_done
from corral.cli.terminal.prompts import password as known_password
from corral.cli.terminal.prompts import password_file_option, send_new_password

USERS: Final = "/api/v1/users"

change_option: Final = click.option(
    "--no-change", is_flag=True, help="The password need not be changed at the next login."
)


@click.command()
@click.argument("name", required=False)
@password_file_option
@click.option(
    "--current-password-file",
    metavar="FILE",
    help="Your own: file with the present one; - for standard input.",
)
@change_option
@api_command
def password(
    session: ApiSession,
    name: str | None,
    password_file: str | None,
    current_password_file: str | None,
    no_change: bool,
) -> None:
    """Change your own password, or give a user another one.

    All sessions of the user end. Of your own a new one begins in place of this one.
    """
    if name is None:
        if no_change:
            raise WrongUsage("--no-change is for the password of another user", hint="name the user")
        _change_own(session, password_file, current_password_file)
        return
    if current_password_file is not None:
        raise WrongUsage("--current-password-file is for your own password", hint="leave NAME out")
    made = send_new_password(
        password_file,
        lambda text: session.client.post(
            f"{USERS}/{segment(name)}/password", {"password": text, "must_change_password": not no_change}
        ),
    )
    later = "" if no_change else "; it has to be changed at the next login"
    show_done(session.output, made, f"user '{name}' has another password{later}", name="name")


def _change_own(session: ApiSession, new_file: str | None, current_file: str | None) -> None:
    me = require_login(session.client)
    if new_file == current_file == "-":
        raise WrongUsage("standard input cannot hold both passwords", hint="use a file for one of them")
    current = known_password(current_file, what="current password", option="--current-password-file")
    answer = send_new_password(
        new_file,
        lambda text: session.client.post("/api/v1/auth/password", {"current": current, "new": text}),
        field="new",
    )
    kept = _keep(session.client, str(answer["token"]))
    told = (
        "all other sessions have ended"
        if kept
        else "all sessions have ended: log in again with 'corral login URL'"
    )
    result = {"user": answer.get("user"), "session": answer.get("session") if kept else None}
    show_done(session.output, result, f"user '{me['user']}' has another password; {told}", name="user")


def _keep(client: Client, token: str) -> bool:
    """Remember the new session where the former one was. False: that was nowhere (a token of the environment or a file),
    and the new one is ended, for nobody would have its token."""
    try:
        if context_store.renew_token(context_store.default_path(os.environ), client.token or "", token):
            return True
    except CommandFailure as failure:
        failure.hint = "the password is changed; log in again with 'corral login URL'"
        raise
    client.token = token
    with contextlib.suppress(CommandFailure):
        end_session(client)
    return False


def require_login(client: Client) -> dict[str, Any]:
    """Who has logged in, before anything is asked for; a token is refused."""
    me: dict[str, Any] = client.get("/api/v1/auth/me")
    if me.get("session") is None:
        raise CommandRefused(
            "this is for people who have logged in, and you use a token",
            hint="log in by password: corral login URL --user NAME; administrators name the user",
            code="FORBIDDEN",
        )
    return me


@click.command("reset-delay")
@click.argument("name")
@api_command
def reset_delay(session: ApiSession, name: str) -> None:
    """Let a user log in at once after failed logins."""
    made = session.client.post(f"{USERS}/{segment(name)}/reset-delay")
    show_done(session.output, made, f"logins of user '{name}' are not delayed", name="name")
