"""`corral controller` and `corral daemon`: run one, in the foreground."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import BadConfiguration, CommandRefused, WrongUsage, note
from corral.cli.offline_options import offline_config, offline_options
from corral.errors import CorralError

R = TypeVar("R")

CONTROLLER_SETTINGS: Final = {
    "data": "data",
    "http": "http.listen",
    "grpc": "grpc.listen",
    "advertise": "grpc.advertise",
    "bootstrap": "bootstrap.listen",
    "store": "store.url",
    "groups": "groups.directory",
}
"""The setting of each of a controller's flags."""
DAEMON_SETTINGS: Final = {
    "data": "data",
    "controller": "controllers",
    "node_id": "node.id",
    "advertise": "node.advertise",
    "labels": "node.labels",
}


class Flags:
    """The flags both roles take."""

    def __init__(
        self, *, config: str | None, level: str | None, format: str | None, no_modules: bool = False
    ) -> None:
        named = config or os.environ.get("CORRAL_CONFIG")
        self.path = pathlib.Path(named) if named else None
        self.settings: dict[str, object] = {"log.level": level, "log.format": format}
        if no_modules:
            self.settings["modules.enabled"] = "false"
        self.print_config = False
        self.parent_fd: int | None = None


def role_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the common flags; the command gets them as one `Flags`."""

    @functools.wraps(command)
    def call(
        config: str | None,
        log_level: str | None,
        log_format: str | None,
        no_modules: bool,
        print_config: bool,
        parent_fd: int | None,
        **kwargs: Any,
    ) -> R:
        flags = Flags(config=config, level=log_level, format=log_format, no_modules=no_modules)
        flags.print_config = print_config
        flags.parent_fd = parent_fd
        return command(flags, **kwargs)

    for option in (
        click.option("--parent-fd", type=int, hidden=True, help="End when this pipe does."),
        click.option(
            "--no-modules", is_flag=True, help="Run no module here, whatever is installed; all else goes on."
        ),
        click.option("--print-config", is_flag=True, help="Print every setting and where it came from."),
        click.option("--log-format", metavar="human|json", help="What stderr gets."),
        click.option("--log-level", metavar="LEVEL", help="TRACE, DEBUG, INFO, WARN or ERROR."),
        click.option("--config", metavar="FILE", help="YAML file with settings (CORRAL_CONFIG)."),
    ):
        call = option(call)
    return call


@contextlib.contextmanager
def ended_by(kind: type[CommandRefused] = CommandRefused) -> Iterator[None]:
    """A known failure at the start is printed in two lines, without a traceback."""
    try:
        yield
    except CorralError as error:
        raise kind(error.message, hint=error.hint, code=error.code.name, field=error.field or "") from error


def settings_read() -> contextlib.AbstractContextManager[None]:
    """Settings that are refused end a role with a code of their own."""
    return ended_by(BadConfiguration)


@click.group(invoke_without_command=True)
@click.option("--data", metavar="DIR", help="Directory of everything it keeps.")
@click.option("--http", metavar="HOST:PORT", help="Address of the API; port 0 picks a free one.")
@click.option("--grpc", metavar="HOST:PORT", help="Address that daemons connect to.")
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="Address for join tokens; the gRPC port + 1 if left out."
)
@click.option("--advertise", metavar="HOST:PORT", help="Address that daemons shall use.")
@click.option("--store", metavar="URL", help="sqlite or postgresql://….")
@click.option("--groups", metavar="DIR", help="Load group documents from here; only with SQLite.")
@click.option(
    "--found-cluster",
    is_flag=True,
    help="For one start: make a new cluster although a former one left its key, token or artifacts here.",
)
@click.option(
    "--accept-older-store",
    is_flag=True,
    help="For one start: go on with a store that has lost what this controller has seen, as after a restore.",
)
@role_options
@click.pass_context
def controller(
    ctx: click.Context,
    /,
    flags: Flags,
    found_cluster: bool,
    accept_older_store: bool,
    **given: str | None,
) -> int:
    """Run a controller until a signal ends it. Every other setting: --print-config."""
    if ctx.invoked_subcommand is not None:
        misplaced = [name for name in ("--data", "--store", "--config") if ctx.params.get(name[2:])]
        if misplaced:
            raise WrongUsage(
                f"{misplaced[0]} has to come after '{ctx.invoked_subcommand}'", hint="write it behind"
            )
        return 0
    settings = {CONTROLLER_SETTINGS[name]: value for name, value in given.items()} | flags.settings
    with settings_read():
        from corral.system.config import load_controller, render

        config, sources = load_controller(flags.path, os.environ, settings)
    if flags.print_config:
        click.echo(render(config, sources), nl=False)
        return 0
    with ended_by():
        import_structlog_alone()
        from corral.cli.executed.program import PROGRAM
        from corral.controller.app import run_controller

        return run_controller(
            config,
            commands=PROGRAM,
            parent_fd=flags.parent_fd,
            found_cluster=found_cluster,
            accept_older_store=accept_older_store,
        )


@controller.command("admin-token")
@offline_options
def admin_token(**where: str | None) -> None:
    """Make a new administrator's token, when all of them are lost. It is written to DATA/admin.token, and audited."""
    with ended_by():
        config = offline_config(**where)
        from corral.controller.term.admin_token import make_admin_token

        made = make_admin_token(config)
    click.echo(f"a new administrator's token ({made.id}) is in {made.path}")
    note("start the controller, then: corral login URL --token-file " + shlex.quote(str(made.path)))


def import_structlog_alone() -> None:
    """Import structlog as if `rich` were not installed. It imports the whole of it, for tracebacks that we do not render:
    5 MB and a tenth of a second of each role. Those who use it, sigstore for one, still can."""
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # the way to have an import refused
    try:
        import structlog  # noqa: F401 - for its effect
    finally:
        del sys.modules["rich"]


@click.command()
@click.option("--data", metavar="DIR", help="Directory of everything it keeps.")
@click.option("--controller", metavar="HOST:PORT,…", help="gRPC address of each controller.")
@click.option("--join", metavar="TOKEN", help="Enrol with this join token, unless enrolled already.")
@click.option("--node-id", metavar="ID", help="Id of this node; the host name if left out.")
@click.option("--advertise", metavar="HOST", help="Host that players reach instances at.")
@click.option("--labels", metavar="K=V,…", help="Labels that groups may select this node by.")
@role_options
def daemon(flags: Flags, join: str | None, **given: str | None) -> int:
    """Run a daemon until a signal ends it; its instances keep running. Settings: --print-config."""
    settings = {DAEMON_SETTINGS[name]: value for name, value in given.items()} | flags.settings
    with settings_read():
        from corral.system.config import load_daemon, render

        config, sources = load_daemon(flags.path, os.environ, settings)
    if flags.print_config:
        click.echo(render(config, sources), nl=False)
        return 0
    with ended_by():
        import_structlog_alone()
        from corral.daemon.app import run_daemon

        return run_daemon(config, join=join or _join_token_of_environment(), parent_fd=flags.parent_fd)


def _join_token_of_environment() -> str | None:
    """The join token from the environment, taken out of it so that no child inherits it."""
    from corral.domain.groups.variable_checks import JOIN_VARIABLE

    return os.environ.pop(JOIN_VARIABLE, None) or None
