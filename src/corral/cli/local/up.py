"""`corral up`: a whole cluster on this machine, in the foreground."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shlex
import socket
from collections.abc import Iterator, Mapping
from typing import Final

import click

from corral.cli.failure import CommandFailure, CommandRefused, note, printable
from corral.cli.local.child_processes import ChildSupervisor
from corral.cli.local.cluster_processes import NODE, ClusterProcesses, Stopped
from corral.cli.local.demo import PORTS, run_demo
from corral.cli.local.up_state import remove_record, write_record
from corral.cli.roles import ended_by
from corral.cli.terminal.progress_line import ProgressLine
from corral.system.addresses import Address, parse_address
from corral.system.config import ControllerConfig, load_controller, load_daemon
from corral.system.files import DirectoryLock
from corral.system.listening import bind_problem

_NAMES_SHOWN: Final = 5


@click.command()
@click.option("--data", metavar="DIR", required=True, help="Directory of everything; made if missing.")
@click.option("--http", metavar="HOST:PORT", help="Address of the API.  [default: 127.0.0.1:8480]")
@click.option(
    "--grpc", metavar="HOST:PORT", help="Address that daemons connect to.  [default: 127.0.0.1:8481]"
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Address for join tokens.  [default: gRPC port + 1]")
@click.option(
    "--demo/--no-demo",
    default=False,
    help="Also run a group 'lobby' of small servers, and a module, to look at.",
)
@click.option(
    "--demo-ports",
    type=click.IntRange(1, 65_535),
    nargs=2,
    metavar="FIRST LAST",
    default=PORTS,
    show_default=True,
    help="Ports of the demo, when it is made.",
)
@click.option("--found-cluster", is_flag=True, help="For one start, as of 'corral controller'.")
@click.option("--accept-older-store", is_flag=True, help="For one start, as of 'corral controller'.")
@click.option("-v", "--verbose", is_flag=True, help="Show what controller and daemon log.")
def up(
    data: str,
    http: str | None,
    grpc: str | None,
    bootstrap: str | None,
    demo: bool,
    demo_ports: tuple[int, int],
    found_cluster: bool,
    accept_older_store: bool,
    verbose: bool,
) -> int:
    """Run a controller and a daemon until Ctrl-C; instances keep running, 'corral down' stops them.

    This is the development profile: instances run as the user who runs this.
    """
    directory = pathlib.Path(data).expanduser().absolute()
    flags = {
        "data": str(directory / "controller"),
        "http.listen": http,
        "grpc.listen": grpc,
        "bootstrap.listen": bootstrap,
    }
    meant = {"--found-cluster": found_cluster, "--accept-older-store": accept_older_store}
    with ended_by():
        config, _ = load_controller(None, os.environ, flags)
        node_id = load_daemon(None, os.environ, {})[0].node_id(host_name=socket.gethostname())
        with _claimed(directory):
            _check_ports(config, flags)
            if os.geteuid() == 0:
                note("development profile: instances run as root, and can read and change everything here")
            progress = ProgressLine()

            def announce(line: str) -> None:
                progress.clear()
                click.echo(line)

            def echo(name: str, line: str) -> None:
                progress.clear()
                click.echo(f"{name:>10} | {printable(line)}", err=True)

            with ChildSupervisor(echo=echo if verbose else None, announce=announce) as supervisor:
                cluster = ClusterProcesses(
                    supervisor=supervisor,
                    directory=directory,
                    config=config,
                    node_id=node_id,
                    progress=progress,
                    first_flags=tuple(flag for flag, given in meant.items() if given),
                )
                code = _supervise(cluster, demo=demo_ports if demo else None)
            _note_running_instances(directory)
            return code


def _supervise(cluster: ClusterProcesses, *, demo: tuple[int, int] | None) -> int:
    try:
        cluster.start()
        token = shlex.quote(str(cluster.token_path))
        trust = f" --ca {shlex.quote(cluster.ca_file)}" if cluster.ca_file else ""
        click.echo(f"login: corral login {cluster.url}{trust} --token-file {token}")
        if demo is not None:
            module = _demo_module(cluster)
            click.echo(f"demo: {_demo(cluster, demo)}")
            if module:
                click.echo(f"module: {module}")
        click.echo(f"ready: {cluster.url}")
        return cluster.run()
    except Stopped:
        return 0
    finally:
        cluster.stop()


def _demo(cluster: ClusterProcesses, ports: tuple[int, int]) -> str:
    """A summary of the demo; a cluster without a demo is still a cluster."""
    try:
        with contextlib.closing(cluster.client()) as client:
            return run_demo(client, ports=ports, pause=cluster.pause)
    except CommandFailure as failure:
        return f"not there: {printable(failure.message)}"


def _demo_module(cluster: ClusterProcesses) -> str:
    """Installed before the group, so that it sees the first start."""
    from corral.cli.local.demo import run_demo_module

    try:
        with contextlib.closing(cluster.client()) as client:
            return run_demo_module(client)
    except CommandFailure as failure:
        return f"not there: {printable(failure.message)}"


def _note_running_instances(directory: pathlib.Path) -> None:
    from corral.cli.local.up_state import live_instances

    names = live_instances(directory / NODE)
    if not names:
        note("detached: no instance runs")
        return
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    place = shlex.quote(str(directory))
    note(f"detached: {len(names)} instance{'s keep' if len(names) > 1 else ' keeps'} running ({shown})")
    note(f"'corral up --data {place}' supervises them again, 'corral down --data {place}' stops them")


@contextlib.contextmanager
def _claimed(directory: pathlib.Path) -> Iterator[None]:
    """Make the directory ours alone, and let `down` find us."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with DirectoryLock(directory, "up"):
            write_record(directory)
            try:
                yield
            finally:
                remove_record(directory)
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandRefused(
            f"cannot use {directory}: {error.strerror} ({error.filename})", hint="choose another with --data"
        ) from error


def _check_ports(config: ControllerConfig, flags: Mapping[str, object]) -> None:
    """Find a port that is taken before anything starts, and show how to choose another."""
    listeners = [("--http", config.http.listen), ("--grpc", config.grpc.listen)]
    if config.bootstrap.enabled:
        listeners.append(("--bootstrap", str(config.bootstrap_address)))
    for flag, text in listeners:
        address = parse_address(text, any_port=True)
        problem = bind_problem(address) if address.port else None
        if problem is None:
            continue
        derived = flag == "--bootstrap" and not flags["bootstrap.listen"]
        reason = "the gRPC port + 1, for join tokens" if derived else flag.removeprefix("--")
        other = Address(address.host, address.port + 100 if address.port < 65_000 else 8480)
        problem_text = (
            "is in use" if problem == errno.EADDRINUSE else f"cannot be used: {os.strerror(problem)}"
        )
        raise CommandRefused(
            f"port {address.port} on {address.host} ({reason}) {problem_text}",
            hint=f"end what uses it, or choose another with {flag} {other}",
        )
