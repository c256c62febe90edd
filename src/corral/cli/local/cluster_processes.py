"""The controller and the daemon of `corral up`, as child processes: started, joined, restarted, stopped."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from corral.cli.api.client import Client, segment
from corral.cli.failure import CommandFailure, CommandRefused, Unreachable, note
from corral.cli.local.child_processes import Child, ChildSupervisor
from corral.cli.terminal.progress_line import ProgressLine
from corral.domain.groups.variable_checks import JOIN_VARIABLE
from corral.system.addresses import Address, parse_address
from corral.system.aio.backoff import doubled
from corral.system.config import ControllerConfig
from corral.system.files import atomic_write

QUICK_SECONDS: Final = 20.0
"""One that lived longer than this had worked: its death starts a new count."""
MOST_QUICK_DEATHS: Final = 5
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 10.0


class Restarts:
    """Counts the quick deaths of one process."""

    def __init__(self) -> None:
        self._quick = 0

    def died(self, *, after_seconds: float) -> float | None:
        """How long to wait before the next start; None when it is time to give up."""
        self._quick = 1 if after_seconds >= QUICK_SECONDS else self._quick + 1
        if self._quick > MOST_QUICK_DEATHS:
            return None
        return doubled(FIRST_DELAY, self._quick - 1, longest=LONGEST_DELAY)


NODE: Final = "daemon"
"""The node's data directory within ours."""
CONTROLLER_SECONDS: Final = 60.0
DAEMON_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_JOIN_SECONDS: Final = 600
_DEVELOPMENT: Final = {
    "CORRAL_INSTANCES_DEVELOPMENT": "true",
    "CORRAL_DOWNLOADS_ALLOW_PRIVATE": "true",
    "CORRAL_HTTP_LIMITS_REQUESTS_PER_SECOND": "0",
    "CORRAL_HTTP_LIMITS_LOGINS_PER_MINUTE": "0",
    "CORRAL_HTTP_LIMITS_STREAMS": "0",
    "CORRAL_HTTP_LIMITS_TICKETS": "0",
    "CORRAL_HTTP_LIMITS_UPLOADS": "0",
}
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here, replaced


class Stopped(Exception):
    """A signal to end came during a wait."""


class ClusterProcesses:
    """The two children, from the first start to the orderly end."""

    def __init__(
        self,
        *,
        supervisor: ChildSupervisor,
        directory: pathlib.Path,
        config: ControllerConfig,
        node_id: str,
        progress: ProgressLine,
        first_flags: tuple[str, ...] = (),
    ) -> None:
        """`first_flags` are for the first start of the controller alone."""
        self._progress = progress
        self._supervisor = supervisor
        self._directory = directory
        self._config = config
        self._node_id = node_id
        self._first_flags = first_flags
        self._http = config.http.listen
        self._grpc = config.grpc.listen
        self._controller: Child | None = None
        self._daemon: Child | None = None
        self.url = ""

    @property
    def token_path(self) -> pathlib.Path:
        return self._directory / "admin.token"

    def start(self) -> None:
        """Bring up the controller, enrol the daemon if it never was, and wait until it is ONLINE."""
        with self._progress as progress:
            progress.show("starting the controller")
            self._controller = self._start_controller(*self._first_flags)
            self._until_ready(self._controller, CONTROLLER_SECONDS)
            self.url = _usable_url(self._controller.ready or "", self._http)
            self._take_token()
            with contextlib.closing(self.client()) as client:
                progress.show("starting the daemon")
                self._check_token(client)
                self._learn_addresses(client)
                self._daemon = self._start_daemon(self._join_token(client))
                self._until_ready(self._daemon, DAEMON_SECONDS)
                self._until_online(client)

    def client(self) -> Client:
        """The API as the first administrator; the caller closes it."""
        tls = self._config.http.tls
        return Client(
            url=self.url,
            token=self.token_path.read_text().strip(),
            ca_file=self.ca_file or tls.certificate or None,
            any_name=tls.mode == "files",  # its own certificate, whatever name that has
            timeout=5,
        )

    @property
    def ca_file(self) -> str:
        """What others need to trust the controller; empty: what the system trusts."""
        return str(self._config.authority_path) if self._config.http.tls.mode == "cluster" else ""

    def pause(self, seconds: float) -> None:
        """Wait while both live; `Stopped` when we are asked to end meanwhile."""
        self._wait(lambda: False, seconds)

    def run(self) -> int:
        """Keep both alive until a signal; 0 then, 1 when one of them cannot be kept alive. One that ends with 0 was ordered to, and
        stays ended: a daemon alone, a controller with everything of ours, as by a signal."""
        restarts = {"controller": Restarts(), "daemon": Restarts()}
        while self._supervisor.wait(lambda: bool(self._dead()), timeout=None):
            for child in self._dead():
                if child is self._controller and child.process.returncode == 0:
                    note("the controller has ended with 0, as 'corral cluster shutdown' orders it")
                    return 0
                if child is self._daemon and child.process.returncode == 0:
                    self._daemon = None
                    note(
                        "the daemon has ended with 0, as 'corral node shutdown' orders it, and is not started again; "
                        "to go on: Ctrl-C, the same 'corral up' again, corral node undrain " + self._node_id
                    )
                elif not self._start_again(child, restarts[child.name]):
                    return 0 if self._supervisor.signals else 1
        return 0

    def stop(self) -> None:
        """The daemon first, so that it can end its session; instances keep running. Asked again, kill."""
        patience = self._supervisor.signals
        for child in (self._daemon, self._controller):
            if child is None or not child.running:
                continue
            if not self._supervisor.end(child, timeout=STOP_SECONDS, patience=patience):
                note(f"the {child.name} did not end in time and was killed")

    def _dead(self) -> list[Child]:
        started = (self._controller, self._daemon)
        return [child for child in started if child is not None and not child.running]

    def _start_again(self, dead: Child, restarts: Restarts) -> bool:
        delay = restarts.died(after_seconds=dead.lived)
        note(f"the {dead.name} died ({dead.how_it_ended()}) after {dead.lived:.1f} s")
        if delay is None:
            note(f"it died too often, giving up; its last output:\n{_tail(dead)}")
            return False
        self._supervisor.wait(lambda: False, timeout=delay)
        if self._supervisor.signals:
            return False
        if dead.name == "controller":
            self._controller = self._start_controller()
        else:
            self._daemon = self._start_daemon(None)
        return True

    def _start_controller(self, *flags: str) -> Child:
        arguments = ["--http", self._http, "--grpc", self._grpc, *flags]
        if self._config.bootstrap.listen:
            arguments += ["--bootstrap", self._config.bootstrap.listen]
        return self._start("controller", arguments, {})

    def _start_daemon(self, join: str | None) -> Child:
        arguments = ["--controller", _dialled(self._grpc)]
        if join is None:
            return self._start("daemon", arguments, {})
        return self._start("daemon", [*arguments, "--node-id", self._node_id], {JOIN_VARIABLE: join})

    def _environment(self) -> dict[str, str]:
        """Ours, but for a file of settings that is meant for one role alone. Instances run as our user
        unless the environment has another profile."""
        own = {name: value for name, value in os.environ.items() if name != "CORRAL_CONFIG"}
        return {**_DEVELOPMENT, **own}

    def _start(self, role: str, arguments: list[str], secrets: Mapping[str, str]) -> Child:
        # -P: nothing in the current directory can pass itself off as one of our modules
        program = [sys.executable, "-P", "-m", "corral.cli", role, "--data", str(self._directory / role)]
        return self._supervisor.start(role, [*program, *arguments], env={**self._environment(), **secrets})

    def _until_ready(self, child: Child, timeout: float) -> None:
        self._wait(lambda: child.ready is not None, timeout)
        if child.ready is None:
            raise self._failed(child, f"was not ready within {timeout:g} seconds")

    def _wait(self, condition: Callable[[], bool], timeout: float) -> None:
        """Wait while both live; `Stopped` when we are asked to end meanwhile."""
        self._supervisor.wait(lambda: condition() or bool(self._dead()), timeout=timeout)
        if self._supervisor.signals:
            raise Stopped
        for child in self._dead():
            raise self._failed(child, f"ended ({child.how_it_ended()})")

    def _failed(self, child: Child, how: str) -> CommandRefused:
        return CommandRefused(
            f"the {child.name} {how}; its last output:\n{_tail(child)}",
            hint=f"its log is {self._directory / child.name / 'logs' / (child.name + '.log')}",
        )

    def _take_token(self) -> None:
        """The first administrator's token, copied to where people look for it."""
        source = self._directory / "controller" / "admin.token"
        try:
            content = source.read_bytes() if source.exists() else self.token_path.read_bytes()
            if not self.token_path.exists() or self.token_path.read_bytes() != content:
                atomic_write(self.token_path, content)
        except FileNotFoundError:
            raise CommandRefused(
                f"there is no administrator's token at {source}",
                hint=f"put one with the role ADMIN into {self.token_path}; are all lost, "
                f"'corral controller admin-token --data {source.parent}' makes a new one",
            ) from None

    def _check_token(self, client: Client) -> None:
        """Before the daemon starts: whether the token still opens anything."""
        try:
            client.get("/api/v1/auth/me")
        except CommandRefused as refusal:
            if refusal.status not in (401, 403):
                raise
            place = shlex.quote(str(self._directory / "controller"))
            raise CommandRefused(
                f"the administrator's token in {self.token_path} is not accepted: {refusal.message}",
                hint=f"make another: corral controller admin-token --data {place}; then the same 'corral up' again",
                code=refusal.code,
            ) from refusal
        except Unreachable:
            return  # what follows asks again

    def _learn_addresses(self, client: Client) -> None:
        """Pin the ports that were picked, so that a restart is found where it was."""
        self._http = str(Address(parse_address(self._http, any_port=True).host, _port_of(self.url)))
        try:
            cluster = client.get("/api/v1/cluster")
            grpc = parse_address(str(cluster["leader"]["grpc"]))
        except (CommandFailure, KeyError, TypeError, ValueError):
            return  # as configured, then; only a picked port has to be printed
        if parse_address(self._grpc, any_port=True).port == 0:
            self._grpc = str(Address(parse_address(self._grpc, any_port=True).host, grpc.port))

    def _join_token(self, client: Client) -> str | None:
        """Permission for the daemon to enrol; None when it is enrolled already."""
        if (self._directory / NODE / "identity.json").exists():
            return None
        body = {"node_id": self._node_id, "ttl_seconds": _JOIN_SECONDS, "replace": self._is_known(client)}
        made = client.post("/api/v1/nodes/join-tokens", body)
        return str(made["token"])

    def _is_known(self, client: Client) -> bool:
        try:
            client.get(f"/api/v1/nodes/{segment(self._node_id)}")
        except CommandRefused as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    def _until_online(self, client: Client) -> None:
        """The controller must see the node, too; its id is the one that the daemon printed when it was ready."""
        daemon = self._daemon
        assert daemon is not None
        id = (daemon.ready or "").removeprefix("node ").strip() or self._node_id
        deadline = time.monotonic() + DAEMON_SECONDS
        state = "unknown"
        while time.monotonic() < deadline:
            try:
                state = str(client.get(f"/api/v1/nodes/{segment(id)}").get("state"))
            except Unreachable as failure:
                state = failure.message
            if state == "ONLINE":
                return
            self.pause(_POLL_SECONDS)
        raise self._failed(daemon, f"runs, but its node '{id}' did not come ONLINE: {state}")


def _tail(child: Child) -> str:
    return "\n".join(f"  {line}" for line in child.tail) or "  (nothing)"


def _usable_url(ready: str, listen: str) -> str:
    """The address to print: the one that the controller printed, with a host that can be dialled."""
    url = next(
        (word for word in ready.split() if word.startswith(("http://", "https://"))), f"http://{listen}"
    )
    scheme, _, rest = url.rstrip("/").partition("://")
    return f"{scheme}://{_dialled(rest)}"


def _dialled(listen: str) -> str:
    host, port = parse_address(listen, any_port=True)
    return str(Address(_WILDCARDS.get(host, host), port))


def _port_of(url: str) -> int:
    return parse_address(url.partition("://")[2]).port
