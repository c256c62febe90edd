"""`corral login` and `corral logout`: a token that is checked, or a session that begins and ends."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

import click

from corral.cli.api import context_store
from corral.cli.api.client import TIMEOUT_SECONDS, Client
from corral.cli.context import ca_option
from corral.cli.failure import CommandFailure, CommandRefused, Unreachable, WrongUsage, note, printable
from corral.cli.password_login import (
    ASKED,
    Answer,
    LoginDialog,
    become_first_admin,
    first_admin_link,
    require_private,
)
from corral.cli.terminal.output import output_option, show_done
from corral.cli.terminal.prompts import ask, is_terminal, password_file_option
from corral.cli.terminal.values import short_time
from corral.cli.token_options import (
    given_token,
    secret_in,
    token_options,
    warn_of_command_line,
    warn_of_recovery_code,
)

FEW_CODES: Final = 3
_FORMER_SECONDS: Final = 3.0


@click.command()
@click.argument("url", required=False)
@token_options
@click.option("--user", metavar="NAME", help="Log in by password as this user.")
@password_file_option
@click.option(
    "--recovery-code",
    is_flag=False,
    flag_value=ASKED,
    metavar="[CODE]",
    help="A recovery code in place of the second factor; without CODE you are asked.",
)
@click.option(
    "--first-admin",
    is_flag=False,
    flag_value=ASKED,
    metavar="[CODE]",
    help="Become the administrator of a new controller by the code, or the whole address, that it printed; without CODE, "
    "or with -, you are asked.",
)
@click.option("--browser", is_flag=True, help="Let somebody approve the login in a browser, on any device.")
@click.option("--name", metavar="NAME", help="Name to remember it by; the host and port if left out.")
@ca_option
@output_option
@click.pass_context
def login(
    ctx: click.Context,
    url: str | None,
    token: str | None,
    token_file: str | None,
    user: str | None,
    password_file: str | None,
    recovery_code: str | None,
    first_admin: str | None,
    browser: bool,
    name: str | None,
    ca_file: str,
    output: str,
) -> None:
    """Log in to the controller at URL, and remember it.

    With a token (--token-file, CORRAL_TOKEN), which is checked; otherwise by name and password, which you are asked for, or
    with --browser by a code that you type into the login page, on any device. With
    --first-admin the address that the controller printed is enough, and URL may be left out.
    """
    warn_of_command_line(token)
    warn_of_recovery_code(recovery_code)
    text = given_token(token, token_file) or (ctx.obj or {}).get("token")
    by_password = [
        option
        for option, given in (
            ("--user", user),
            ("--password-file", password_file),
            ("--recovery-code", recovery_code),
            ("--first-admin", first_admin),
            ("--browser", browser or None),
        )
        if given is not None
    ]
    if by_password and text:
        raise WrongUsage(f"{by_password[0]} means nothing beside a token", hint="leave one of both out")
    if browser and len(by_password) > 1:
        raise WrongUsage(f"{by_password[0]} means nothing beside --browser", hint="leave one of both out")
    if not by_password:
        text = text or os.environ.get("CORRAL_TOKEN")
    code = ""
    if first_admin is not None:
        printed, code = _printed_link(first_admin, password_file)
        url = url or printed
    if not url:
        raise WrongUsage("the address of the controller is missing", hint="corral login URL")
    where = Place(url=url, ca_file=ca_file, name=name)
    if text:
        result, sentence = _by_token(where, text)
    elif browser:
        result, sentence = _by_browser(where)
    else:
        result, sentence = _by_password(where, user, password_file, recovery_code, code)
    show_done(output, result, sentence, name="name")


class Place:
    """The controller to log in to, and what it is remembered as. The file of contexts is read first: a session that could
    not be remembered is not begun."""

    def __init__(self, *, url: str, ca_file: str, name: str | None) -> None:
        context_store.load(context_store.default_path(os.environ))
        self._ca_file = os.path.abspath(ca_file) if ca_file else ""  # noqa: PTH100
        self.url = Client(url=url, token=None).url
        self.name = name or self.url.split("://", 1)[1]

    def client(self, token: str | None = None, *, timeout: float = TIMEOUT_SECONDS) -> Client:
        return Client(url=self.url, token=token, ca_file=self._ca_file or None, timeout=timeout)

    def remember(self, token: str) -> None:
        """With this token. A session that was remembered in this place before is ended: nobody has its token any more."""
        made = context_store.Context(url=self.url, token=token.strip(), ca_file=self._ca_file)
        try:
            # Again: another login may have written it while somebody typed.
            known = context_store.load(context_store.default_path(os.environ))
            former = known.known.get(self.name)
            known.known[self.name] = made
            known.current = self.name
            known.save()
        except CommandFailure:
            if made.is_session:
                with contextlib.suppress(CommandFailure):
                    end_session(self.client(token))
            raise
        if former is not None and former.is_session and former.token != made.token:
            with contextlib.suppress(CommandFailure):
                end_session(_client(former, timeout=_FORMER_SECONDS))


def _printed_link(given: str, password_file: str | None) -> tuple[str, str]:
    """Address and code of the first administrator."""
    if given != ASKED:
        note("others on this host can see a code on a command line: give --first-admin without it")
        return first_admin_link(given)
    if is_terminal():
        return first_admin_link(ask("Address that the controller printed", instead=""))
    if password_file == ASKED:
        raise WrongUsage(
            "standard input cannot hold both code and password", hint="use a file for the password"
        )
    return first_admin_link(secret_in(ASKED, "code"))


def _by_token(where: Place, text: str) -> tuple[dict[str, Any], str]:
    client = where.client(text)
    with contextlib.closing(client):
        me = client.get("/api/v1/auth/me")
    shown = _caller(me)
    if shown is None:
        raise Unreachable(f"{where.url} does not answer like a Corral controller", hint="check the address")
    where.remember(text)
    result = {"name": where.name, "url": where.url, **shown}
    role = f" ({shown['role']})" if shown["role"] else ""
    return result, f"logged in to {where.url} as '{shown['as']}'{role}"


def _caller(me: Any) -> dict[str, Any] | None:
    """Name and role of the caller: of a token its own; None: this is no answer of ours."""
    if not isinstance(me, dict):
        return None
    token, session = me.get("token"), me.get("session")
    if isinstance(token, dict) and "role" in token:
        return {"as": str(token.get("name", "")), "role": str(token["role"]), "session": None}
    if isinstance(session, dict):
        return {"as": str(me.get("user", "")), "role": "", "session": session.get("id")}
    return None


def _by_password(
    where: Place, user: str | None, password_file: str | None, recovery_code: str | None, code: str
) -> tuple[dict[str, Any], str]:
    if not is_terminal() and user is None:
        raise WrongUsage(
            "neither a token nor a user was given",
            hint="use --token-file or CORRAL_TOKEN, or --user and --password-file; there is no terminal to ask on",
        )
    client = where.client()
    with contextlib.closing(client):
        require_private(client)
        if code:
            answer = become_first_admin(client, code, name=user, password_file=password_file)
        else:
            name = user or ask("User name", instead="use --user")
            answer = LoginDialog(
                client, name=name, password_file=password_file, recovery_code=recovery_code
            ).run()
    return _logged_in(where, answer)


def _by_browser(where: Place) -> tuple[dict[str, Any], str]:
    from corral.cli.browser_login import WAIT_SECONDS, log_in_by_browser

    client = where.client(timeout=WAIT_SECONDS)
    with contextlib.closing(client):
        return _logged_in(where, log_in_by_browser(client))


def _logged_in(where: Place, answer: Answer) -> tuple[dict[str, Any], str]:
    """Remember the session that an answer brought."""
    where.remember(str(answer["token"]))
    _warn_of_few_codes(answer)
    result = {
        "name": where.name,
        "url": where.url,
        "as": answer.get("user"),
        "role": "",
        "session": answer.get("session"),
        "expires_at": answer.get("expires_at"),
        "recovery_codes_left": answer.get("recovery_codes_left"),
    }
    until = short_time(answer.get("expires_at"))
    return result, f"logged in to {where.url} as '{answer.get('user')}', until {until} at the latest"


def _warn_of_few_codes(answer: Answer) -> None:
    left = answer.get("recovery_codes_left")
    if isinstance(left, int) and left <= FEW_CODES:
        note(f"recovery codes left: {left}; 'corral user totp recovery-codes' makes new ones")


@click.command()
@click.argument("name", required=False)
@click.option("--force", is_flag=True, help="Forget it here even if the session cannot be ended there.")
@output_option
def logout(name: str | None, force: bool, output: str) -> None:
    """Forget a controller, or the one in use. A session is ended there first; a token stays valid."""
    known = context_store.load(context_store.default_path(os.environ))
    chosen = name or known.current
    if not chosen:
        raise WrongUsage("no context is in use", hint="name one; 'corral context list' shows them")
    gone = known.find(chosen)
    ended = gone.is_session and _ended(gone, force=force)
    del known.known[chosen]
    if known.current == chosen:
        known.current = ""
    known.save()
    if ended:
        told = "the session is ended"
    elif gone.is_session:
        told = "the session was not ended there, and goes on until it is unused for 12 hours"
    else:
        told = "revoke the token with 'corral token revoke' if nobody else uses it"
    result = {"name": chosen, "url": gone.url, "session_ended": ended}
    show_done(output, result, f"forgot '{chosen}' ({gone.url}); {told}", name="name")


def _ended(context: context_store.Context, *, force: bool) -> bool:
    """End the session; False where that failed and it shall be forgotten all the same."""
    try:
        end_session(_client(context))
    except CommandFailure as failure:
        if force:
            note(failure.message)
        elif not is_terminal():
            failure.hint = "nothing was forgotten; --force forgets it here, and the session goes on there"
            raise
        elif not click.confirm(f"{printable(failure.message)}\nforget it here all the same", err=True):
            raise click.Abort from None
        return False
    return True


def end_session(client: Client) -> None:
    """End the session of a client at its controller; it may have ended already. `CommandFailure`."""
    try:
        client.post("/api/v1/auth/logout")
    except CommandRefused as refusal:
        if refusal.status != 401:
            raise
    finally:
        client.close()


def _client(context: context_store.Context, *, timeout: float = TIMEOUT_SECONDS) -> Client:
    ca_file = os.environ.get("CORRAL_CA") or context.ca_file
    return Client(url=context.url, token=context.token, ca_file=ca_file or None, timeout=timeout)
