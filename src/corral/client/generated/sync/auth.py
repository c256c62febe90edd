"""Methods of `auth`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.generated import models
from corral.client.requests import Request
from corral.client.sync_calls import SyncCalls


class Auth:
    """Operations of `/api/v1/auth`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def login(
        self,
        *,
        name: str | UnsetType | None = UNSET,
        password: str | UnsetType | None = UNSET,
        totp: str | UnsetType | None = UNSET,
        recovery_code: str | UnsetType | None = UNSET,
        new_password: str | UnsetType | None = UNSET,
        code: str | UnsetType | None = UNSET,
        page_secret: str | UnsetType | None = UNSET,
        first_admin_code: str | UnsetType | None = UNSET,
        device_code: str | UnsetType | None = UNSET,
        kind: models.SessionKind | UnsetType = UNSET,
    ) -> models.Login:
        """Log in; a browser gets a cookie and the secret that goes with it, a command line a token.

        - `name`: Name of the user; with `first_admin_code` the name that the first administrator shall have.
        - `password`: Password of the user; with `first_admin_code` the one that the first administrator shall have.
        - `totp`: Code of the second factor, six digits; needed where the user has one.
        - `recovery_code`: A recovery code in place of `totp`; it can be used once.
        - `new_password`: Another password, where the one that is shown was given by an administrator.
        - `code`: One-time code with which a browser came back from the provider of OpenID Connect.
        - `page_secret`: The secret whose `challenge` the page named when it began the login with the provider.
        - `first_admin_code`: The code that a controller prints while no administrator has a password.
        - `device_code`: The code of a login that a person approves in a browser; the request waits for that, for up to 25 seconds.
        - `kind`: BROWSER: a cookie and `csrf`; COMMAND_LINE: a `token` for the header Authorization. Default: `BROWSER`.

        `POST /api/v1/auth/login`.
        """
        return self._calls.call(
            Request[models.Login](
                "POST",
                "/api/v1/auth/login",
                models.Login,
                json={
                    "name": name,
                    "password": password,
                    "totp": totp,
                    "recovery_code": recovery_code,
                    "new_password": new_password,
                    "code": code,
                    "page_secret": page_secret,
                    "first_admin_code": first_admin_code,
                    "device_code": device_code,
                    "kind": kind,
                },
            )
        )

    def logout(self, *, idempotency_key: str | None = None) -> None:
        """End the caller's session; its open streams end.

        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/auth/logout`, permission `self.read`.
        """
        self._calls.call(Request[None]("POST", "/api/v1/auth/logout", keyed=True, key=idempotency_key))

    def me(self) -> models.Me:
        """The caller and his permissions.

        `GET /api/v1/auth/me`, permission `self.read`.
        """
        return self._calls.call(Request[models.Me]("GET", "/api/v1/auth/me", models.Me))

    def password(self, *, current: str, new: str, idempotency_key: str | None = None) -> models.Login:
        """Change the own password; all sessions of the user end, and a new one begins.

        - `current`: The present password.
        - `new`: The password from now on: 12 to 256 characters, and not what everybody tries first.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/auth/password`, permission `self.manage`.
        """
        return self._calls.call(
            Request[models.Login](
                "POST",
                "/api/v1/auth/password",
                models.Login,
                json={"current": current, "new": new},
                keyed=True,
                key=idempotency_key,
            )
        )

    def totp(self, *, password: str) -> models.TotpSetup:
        """Begin to set up a second factor; nothing changes before it is confirmed.

        - `password`: The present password, once more.

        `POST /api/v1/auth/totp`, permission `self.manage`.
        """
        return self._calls.call(
            Request[models.TotpSetup](
                "POST", "/api/v1/auth/totp", models.TotpSetup, json={"password": password}
            )
        )

    def totp_confirm(
        self, *, setup: str, code: str, idempotency_key: str | None = None
    ) -> models.RecoveryCodes:
        """Confirm the second factor by a code of the app; logins need it from now on.

        - `setup`: As the request that began it answered.
        - `code`: The code that the app shows now, six digits.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/auth/totp/confirm`, permission `self.manage`.
        """
        return self._calls.call(
            Request[models.RecoveryCodes](
                "POST",
                "/api/v1/auth/totp/confirm",
                models.RecoveryCodes,
                json={"setup": setup, "code": code},
                keyed=True,
                key=idempotency_key,
            )
        )

    def totp_remove(
        self,
        *,
        password: str,
        totp: str | UnsetType | None = UNSET,
        recovery_code: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> None:
        """Remove the own second factor.

        - `password`: The present password, once more.
        - `totp`: Code of the second factor.
        - `recovery_code`: A recovery code in its place.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/auth/totp/remove`, permission `self.manage`.
        """
        self._calls.call(
            Request[None](
                "POST",
                "/api/v1/auth/totp/remove",
                json={"password": password, "totp": totp, "recovery_code": recovery_code},
                keyed=True,
                key=idempotency_key,
            )
        )

    def recovery_codes(
        self,
        *,
        password: str,
        totp: str | UnsetType | None = UNSET,
        recovery_code: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.RecoveryCodes:
        """Make new recovery codes; the earlier ones are void.

        - `password`: The present password, once more.
        - `totp`: Code of the second factor.
        - `recovery_code`: A recovery code in its place.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/auth/recovery-codes`, permission `self.manage`.
        """
        return self._calls.call(
            Request[models.RecoveryCodes](
                "POST",
                "/api/v1/auth/recovery-codes",
                models.RecoveryCodes,
                json={"password": password, "totp": totp, "recovery_code": recovery_code},
                keyed=True,
                key=idempotency_key,
            )
        )

    def device(self) -> models.DeviceLogin:
        """Begin a login of a command line that a person approves in a browser.

        `POST /api/v1/auth/device`.
        """
        return self._calls.call(
            Request[models.DeviceLogin]("POST", "/api/v1/auth/device", models.DeviceLogin)
        )

    def device_find(self, *, user_code: str) -> models.WaitingLogin:
        """Show the login that waits with a code, before approving it.

        - `user_code`: The code that the command line shows.

        `POST /api/v1/auth/device/find`, permission `self.manage`.
        """
        return self._calls.call(
            Request[models.WaitingLogin](
                "POST", "/api/v1/auth/device/find", models.WaitingLogin, json={"user_code": user_code}
            )
        )

    def device_decide(
        self, *, user_code: str, approve: bool, idempotency_key: str | None = None
    ) -> models.WaitingLogin:
        """Let a command line in as oneself, or refuse it.

        - `user_code`: The code that the command line shows.
        - `approve`: true: it gets a session of the caller's user; false: it gets none.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/auth/device/decide`, permission `self.manage`.
        """
        return self._calls.call(
            Request[models.WaitingLogin](
                "POST",
                "/api/v1/auth/device/decide",
                models.WaitingLogin,
                json={"user_code": user_code, "approve": approve},
                keyed=True,
                key=idempotency_key,
            )
        )

    def sessions(self) -> models.OwnSessionList:
        """List the caller's own sessions.

        `GET /api/v1/auth/sessions`, permission `self.read`.
        """
        return self._calls.call(
            Request[models.OwnSessionList]("GET", "/api/v1/auth/sessions", models.OwnSessionList)
        )

    def delete_session(self, id: str, *, idempotency_key: str | None = None) -> None:
        """End one of the caller's own sessions.

        - `id`: Id of the session, `ses-…`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/auth/sessions/{id}`, permission `self.manage`.
        """
        self._calls.call(
            Request[None]("DELETE", f"/api/v1/auth/sessions/{segment(id)}", keyed=True, key=idempotency_key)
        )
