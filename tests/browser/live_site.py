"""A controller as a process, with a provider of OpenID Connect, for browsers to open."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any

import httpx
import pyotp

from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster
from tests.component.accounts.oidc_logins import section_for

PASSWORD = "mossy kettle under nine bridges"
OTHER = "nineteen lamps and a wet umbrella"
PROVIDER = "Example <ID>"
LOGIN = "/api/v1/auth/login"


class LiveSite:
    """What tests know about the controller, and what an administrator does to it beside the browser."""

    def __init__(self, url: str, *, first_admin: str, data: pathlib.Path) -> None:
        self.url = url
        self.first_admin = first_admin
        """The address that it printed at its start."""
        self._token = (data / "admin.token").read_text().strip()

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {token or self._token}"}
        answer = httpx.request(method, self.url + path, json=body, headers=headers, timeout=30, verify=False)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def user(self, name: str, *, must_change: bool = False) -> str:
        """A user who may log in by `PASSWORD`. Never an administrator: the printed code would be void."""
        body = {
            "name": name,
            "bindings": [{"role": "OPERATOR"}],
            "password": PASSWORD,
            "must_change_password": must_change,
        }
        self.call("POST", "/api/v1/users", body)
        return name

    def second_factor(self, name: str) -> tuple[pyotp.TOTP, list[str]]:
        """Give a user a second factor; its app, and its recovery codes."""
        body = {"name": name, "password": PASSWORD, "kind": "COMMAND_LINE"}
        token = httpx.post(self.url + LOGIN, json=body, timeout=30, verify=False).json()["token"]
        begun = self.call("POST", "/api/v1/auth/totp", {"password": PASSWORD}, token=token)
        app = pyotp.TOTP(begun["secret"].replace(" ", ""))
        confirmation = {"setup": begun["setup"], "code": app.now()}
        codes = self.call("POST", "/api/v1/auth/totp/confirm", confirmation, token=token)["codes"]
        self.call("POST", "/api/v1/auth/logout", token=token)
        return app, codes

    def sessions(self, user: str) -> list[str]:
        """The sessions of a user, by id."""
        return [item["id"] for item in self.call("GET", f"/api/v1/sessions?user={user}")["items"]]


async def open_site(stack: contextlib.AsyncExitStack, directory: pathlib.Path, *, issuer: str) -> LiveSite:
    """A fresh controller, as a process."""
    (address,) = free_addresses(1)
    config, data = directory / "controller.yaml", directory / "data"
    settings: dict[str, Any] = {"format": "corral-controller", "version": 1}
    if issuer:
        section = section_for(issuer, directory, display_name=PROVIDER)
        settings["http"] = {"public_url": f"http://{address}"}
        settings["oidc"] = {name: getattr(section, name) for name in section.__struct_fields__}
    config.write_text(json.dumps(settings))
    cluster = await stack.enter_async_context(ProcessCluster(directory))
    process = cluster.start(
        "controller", "--data", str(data), "--http", address, "--grpc", "127.0.0.1:0", "--config", str(config)
    )
    url = await process.ready()
    (printed,) = [line for line in process.printed if line.startswith("first-admin: ")]
    return LiveSite(url, first_admin=printed.removeprefix("first-admin: "), data=data)
