"""A login by password at the API, in as many steps as it takes: the controller answers what a login lacks, a code of the
second factor or another password, and it is sent again with that."""

from __future__ import annotations

import re
from typing import Any, Final

from corral.cli.api.client import Client
from corral.cli.failure import CommandRefused, Unreachable, WrongUsage, note, report
from corral.cli.terminal.prompts import ask, is_terminal, new_password, password

LOGIN: Final = "/api/v1/auth/login"
ASKED: Final = "-"
"""In place of a code: it is asked for."""
_PAGE: Final = "/first-admin"
_TOTP: Final = re.compile(r"[0-9]{3}[ -]?[0-9]{3}")
_PASSWORDS: Final = 3
"""So many are asked for. Five wrong ones, by anybody, delay the next login."""
_WAITED: Final = frozenset({"LOGIN_DELAYED", "RATE_LIMITED"})

Answer = dict[str, Any]


class LoginDialog:
    """A login in which somebody at the terminal is asked for what it lacks; it has all that was shown so far."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        password_file: str | None = None,
        recovery_code: str | None = None,
    ) -> None:
        """`password_file`: of the password, which is asked for without one; `recovery_code`: for the second factor in place
        of the app's code; `ASKED`: ask for one."""
        self._client = client
        self._shown: dict[str, str] = {"name": name, "password": password(password_file)}
        self._questions_left = _PASSWORDS - 1 if password_file is None else 0
        self._factor: dict[str, str] = {}
        self._recovery_code = recovery_code

    def run(self) -> Answer:
        """The answer with the session's token. A refusal that nobody at the terminal can mend is raised."""
        while True:
            try:
                return send(self._client, {**self._shown, **self._factor})
            except CommandRefused as refusal:
                self._complete(refusal)

    def _complete(self, refusal: CommandRefused) -> None:
        """Ask for what the login lacks, or for what was wrong of it."""
        if refusal.code == "SECOND_FACTOR_REQUIRED":
            self._factor = self._code()
        elif refusal.code == "PASSWORD_CHANGE_REQUIRED":
            note(refusal.message)
            self._shown["new_password"] = new_password(None, option="a terminal: it has to be changed there")
        elif is_terminal() and refusal.field == "new_password":
            report(refusal.message, hint=refusal.hint)
            self._shown["new_password"] = new_password(None)
        elif is_terminal() and refusal.code == "LOGIN_FAILED" and self._factor and not refusal.retry_after:
            report("the code is wrong, or was used before")  # the password was right: a code was asked for
            self._factor = self._code()
        elif refusal.code == "LOGIN_FAILED" and self._questions_left and not refusal.retry_after:
            report("name or password is wrong")
            self._questions_left -= 1
            self._shown["password"] = password(None)
        else:
            raise refusal

    def _code(self) -> dict[str, str]:
        given, self._recovery_code = self._recovery_code, ASKED if self._recovery_code else None
        return second_factor(given)


def second_factor(recovery_code: str | None) -> dict[str, str]:
    """A code of the app or a recovery code, in the words of the API: the given one, or what somebody types."""
    if recovery_code is not None and recovery_code != ASKED:
        return {"recovery_code": recovery_code}
    what = "Recovery code" if recovery_code else "Code of the second factor, or a recovery code"
    typed = ask(what, instead="use --recovery-code; scripts rather have a token").strip()
    return {"totp": typed} if _TOTP.fullmatch(typed) else {"recovery_code": typed}


def become_first_admin(client: Client, code: str, *, name: str | None, password_file: str | None) -> Answer:
    """The answer to whoever has the code that a controller without an administrator prints."""
    chosen = name or _administrator()
    given = new_password(password_file)
    while True:
        try:
            return send(client, {"first_admin_code": code, "name": chosen, "password": given})
        except CommandRefused as refusal:
            if not is_terminal():
                raise
            if refusal.field == "name" and name is None:
                report(refusal.message, hint=refusal.hint)
                chosen = _administrator()
            elif refusal.field == "password" and password_file is None:
                report(refusal.message, hint=refusal.hint)
                given = new_password(None)
            else:
                raise


def _administrator() -> str:
    return ask("User name of the administrator", instead="use --user", default="admin")


def first_admin_link(text: str) -> tuple[str, str]:
    """Address and code of what a controller prints, `first-admin: URL/first-admin#CODE`; without an address the code alone."""
    link = text.strip().removeprefix("first-admin:").strip()
    address, separator, code = link.rpartition("#")
    if not code or (not separator and "://" in code):
        raise WrongUsage(
            "there is no code of the first administrator in this",
            hint=f"give the whole address that the controller printed, URL{_PAGE}#CODE; the controller's own comes first: "
            "corral login URL --first-admin",
        )
    return address.rstrip("/").removesuffix(_PAGE), code


def require_private(client: Client) -> None:
    """Refuse, before a password is asked for and sent, where the controller refuses logins over this connection."""
    if client.is_private:
        return
    try:
        send(client, {})
    except CommandRefused as refusal:
        if refusal.code != "MISSING_FIELD":
            raise


def send(client: Client, shown: dict[str, str]) -> Answer:
    try:
        answer = client.post(LOGIN, {**shown, "kind": "COMMAND_LINE"})
    except CommandRefused as refusal:
        if refusal.code in _WAITED and refusal.retry_after:
            then = f"the next attempt is possible in {refusal.retry_after} s"
            refusal.hint = f"{then}; {refusal.hint}" if refusal.hint else then
        raise
    if not isinstance(answer, dict) or not answer.get("token"):
        raise Unreachable(f"{client.url} does not answer like a Corral controller", hint="check the address")
    return answer
