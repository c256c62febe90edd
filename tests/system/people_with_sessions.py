"""People who log in at whichever controller leads, in browsers and by command lines, and keep a history of what they did."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pyotp
from session_history import TICKS, Ending, HeldSession, Outcome, SessionHistory

PASSWORD = "mossy kettle under nine bridges"
LOGIN = "/api/v1/auth/login"
ME = "/api/v1/auth/me"
STREAM = "/api/v1/events/stream"
CSRF = "X-Corral-CSRF"
ATTEMPT_SECONDS = 20.0


class NoAnswer(Exception):
    """It may have been done or not."""


class Unanswered(Exception):
    """No controller leads: nothing was done."""


class People:
    """Requests of users and of an administrator. `addresses`: those of all controllers; the leader is found among them."""

    def __init__(self, addresses: Sequence[str], *, admin_token: str) -> None:
        self._addresses = list(addresses)
        self.admin = {"Authorization": f"Bearer {admin_token}"}
        self._cluster = ""
        self.history = SessionHistory()
        self.http = httpx.AsyncClient(
            timeout=ATTEMPT_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def __aenter__(self) -> People:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """The leader's answer. `Unanswered`, `NoAnswer`."""
        for address in list(self._addresses):
            try:
                answer = await self.http.request(
                    method, f"http://{address}{path}", json=body, headers=headers or {}
                )
            except httpx.ConnectError:
                continue
            except httpx.TransportError as error:
                raise NoAnswer(repr(error)) from error
            code = refusal_of(answer)
            if answer.status_code >= 500:
                assert answer.status_code == 503, answer.text
                assert float(answer.headers["retry-after"]) > 0, answer.headers
                if code == "NOT_LEADER":
                    continue
                raise NoAnswer(code)
            return answer
        raise Unanswered

    async def as_admin(self, method: str, path: str, body: object = None) -> Any:
        answer = await self.ask(method, path, body, self.admin)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def make_user(self, name: str, *, password: str = PASSWORD, role: str = "VIEWER") -> None:
        body = {
            "name": name,
            "bindings": [{"role": role}],
            "password": password,
            "must_change_password": False,
        }
        await self.as_admin("POST", "/api/v1/users", body)

    async def log_in(
        self, name: str, password: str = PASSWORD, *, kind: str = "BROWSER", **more: str
    ) -> tuple[HeldSession | None, httpx.Response]:
        """The session, and the answer; None: refused. `Unanswered`, `NoAnswer`."""
        asked_at = next(TICKS)
        body = {"name": name, "password": password, "kind": kind, **more}
        try:
            answer = await self.ask("POST", LOGIN, body)
        except NoAnswer:
            self.history.open_logins[name] = self.history.open_logins.get(name, 0) + 1
            raise
        if not answer.is_success:
            return None, answer
        return self.keep(answer, asked_at), answer

    def keep(self, answer: httpx.Response, asked_at: int) -> HeldSession:
        """The session that an answer gave."""
        found = answer.json()
        credential = found["token"] or answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
        if not found["token"]:
            self._cluster = answer.headers["set-cookie"].removeprefix("corral-").partition("-")[0]
        held = HeldSession(
            id=found["session"], user=found["user"], credential=credential, csrf=found["csrf"],
            asked_at=asked_at, given_at=next(TICKS),
        )  # fmt: skip
        self.history.held[held.id] = held
        return held

    def headers(self, held: HeldSession) -> dict[str, str]:
        """What the owner of a session sends. On plain HTTP the name of the cookie has the port, so a browser that was sent to another
        controller of this host has it by two names."""
        if not held.csrf:
            return {"Authorization": f"Bearer {held.credential}"}
        names = (f"corral-{self._cluster}-{address.rpartition(':')[2]}" for address in self._addresses)
        return {CSRF: held.csrf, "Cookie": "; ".join(f"{name}={held.credential}" for name in names)}

    async def end(
        self, ending: Ending, method: str, path: str, body: object = None, *, by: HeldSession | None = None
    ) -> httpx.Response | None:
        """Send a request that ends sessions, and record its outcome; None: there was no answer."""
        try:
            answer = await self.ask(method, path, body, self.admin if by is None else self.headers(by))
        except NoAnswer:
            return None
        except Unanswered:
            ending.outcome = Outcome.REFUSED
            return None
        finally:
            ending.answered_at = next(TICKS)
        ending.outcome = Outcome.DONE if answer.is_success else Outcome.REFUSED
        return answer

    async def check_all(self, *, only: Sequence[HeldSession] | None = None) -> None:
        """Each session is listed or not as the history says, and each, or these alone, accepted or refused."""
        for held in list(self.history.held.values()) if only is None else only:
            answer = await self.ask("GET", ME, headers=self.headers(held))
            if not answer.is_success:
                assert (answer.status_code, refusal_of(answer)) == (401, "UNAUTHENTICATED"), answer.text
            self.history.check_session(held, accepted=answer.is_success)
        listed = (await self.as_admin("GET", "/api/v1/sessions?limit=500"))["items"]
        self.history.check_list({each["id"]: each["user"] for each in listed})

    @contextlib.asynccontextmanager
    async def stream(self, held: HeldSession) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of the event stream of a session, once it follows."""
        for address in self._addresses:
            with contextlib.suppress(httpx.ConnectError):
                url = f"http://{address}{STREAM}"
                async with self.http.stream("GET", url, headers=self.headers(held)) as response:
                    if response.status_code == 503:
                        continue
                    assert response.status_code == 200, await response.aread()
                    lines = response.aiter_lines()
                    async for line in lines:
                        if line.startswith(": following"):
                            break
                    yield lines
                    return
        raise Unanswered


def refusal_of(answer: httpx.Response) -> str:
    """The code of a refusal; empty: it is none."""
    return "" if answer.is_success else str(answer.json()["error"]["code"])


async def set_up_totp(people: People, held: HeldSession) -> tuple[pyotp.TOTP, int, list[str]]:
    """A second factor, the first of its steps that is not used, and recovery codes."""
    headers = people.headers(held)
    begun = (await people.ask("POST", "/api/v1/auth/totp", {"password": PASSWORD}, headers)).json()
    app = pyotp.TOTP(begun["secret"].replace(" ", ""))
    for _ in range(2):  # at the end of a step the code of the one before is too old
        step = int(time.time()) // 30
        body = {"setup": begun["setup"], "code": app.generate_otp(step - 1)}
        answer = await people.ask("POST", "/api/v1/auth/totp/confirm", body, headers)
        if answer.is_success:
            break
    return app, step, answer.json()["codes"]
