"""`corral local`: instances of this machine, through the socket of its daemon and without a controller."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import CommandRefused, Unreachable, note
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, output_option, show_done, show_list, state_column
from corral.errors import counted, short_list

COLUMNS: Final = (
    Column("ID", "id"),
    state_column("STATE", "state"),
    Column("PID", "pid"),
    Column("PORT", "port"),
    Column("RUN", "incarnation"),
    Column("REASON", lambda item: str(item.get("summary") or item.get("reason") or "-")),
)

_DAEMON: Final = "daemon"
_MADE_BY_DAEMONS: Final = ("daemon.lock", "runs", "keeper")
_SHOWN: Final = 5
_WITHOUT_PROCESS: Final = ("SCHEDULED", "STOPPED", "CRASHED")

F = TypeVar("F", bound=Callable[..., Any])


def _take_data(ctx: click.Context, _: click.Parameter, data: str | None) -> None:
    if data is not None:
        ctx.obj = pathlib.Path(data).expanduser().absolute()


@click.group()
@click.option(
    "--data",
    metavar="DIR",
    default="/var/lib/corral/daemon",
    show_default=True,
    expose_value=False,
    callback=_take_data,
    help="The daemon's data directory.",
)
def local() -> None:
    """Instances of this machine, by its daemon's own socket; no controller is asked."""


def data_option(command: F) -> F:
    """The group's `--data`, for those who write it after the command."""
    help = "The daemon's data directory, as before the command."
    option = click.option("--data", metavar="DIR", expose_value=False, callback=_take_data, help=help)
    return option(command)


@local.command(name="list")
@data_option
@output_option
@click.pass_obj
def list_(data: pathlib.Path, output: str) -> None:
    """Runs of this node that live, and those that have ended."""
    show_list(output, ask(data, "list")["items"], columns=COLUMNS)


@local.command()
@click.argument("id")
@data_option
@output_option
@click.pass_obj
def stop(data: pathlib.Path, id: str, output: str) -> None:
    """Stop an instance gracefully, and wait until nothing of it is left."""
    _show(output, ask(data, "stop", id=id)["item"])


@local.command()
@click.argument("id")
@data_option
@output_option
@click.pass_obj
def kill(data: pathlib.Path, id: str, output: str) -> None:
    """Kill everything of an instance at once."""
    _show(output, ask(data, "kill", id=id)["item"])


@local.command()
@click.argument("id")
@data_option
@output_option
@click.pass_obj
def restart(data: pathlib.Path, id: str, output: str) -> None:
    """Stop an instance and start it again as its next run."""
    _show(output, ask(data, "restart", id=id)["item"])


@local.command()
@click.argument("id")
@click.argument("line")
@data_option
@output_option
@click.pass_obj
def command(data: pathlib.Path, id: str, line: str, output: str) -> None:
    """Write one line into an instance's input."""
    item = ask(data, "command", id=id, command=line)["item"]
    show_done(output, item, f"sent to {item['id']}")


@local.command(name="stop-all")
@click.option("--force", is_flag=True, help="Kill at once instead of stopping gracefully.")
@click.option("--config", metavar="FILE", help="The daemon's config file, when no daemon runs.")
@yes_option
@data_option
@output_option
@click.pass_obj
def stop_all(data: pathlib.Path, force: bool, config: str | None, yes: bool, output: str) -> None:
    """Stop every instance and wait until nothing is left. Works without a daemon, too."""
    served = is_served(data)
    ran = _running(data, served=served)
    if ran:
        confirm(f"{'kill' if force else 'stop'} {short_list(ran, _SHOWN)} in {data}", yes=yes)
    items = ask(data, "stop-all", force=force)["items"] if served else _offline(data, force, config)
    stopped = f"{counted(len(ran), 'instance')} stopped; nothing runs in {data}"
    done = {"items": items, "ended": len(ran)}
    show_done(output, done, stopped if ran else f"nothing ran in {data}", name="ended")
    if served:
        note(
            "the daemon still runs: a controller that it is connected to keeps the min of its groups, here unless the "
            "node is cordoned ('corral node cordon')"
        )


def _running(data: pathlib.Path, *, served: bool) -> list[str]:
    """Ids of the instances that run in this directory, without those that wait for a restart; refused when it is no
    daemon's."""
    if served:
        items = ask(data, "list")["items"]
        return sorted({item["id"] for item in items if item["state"] not in _WITHOUT_PROCESS})
    from corral.cli.local.up_state import live_instances

    if not _is_daemons(data):
        within = data / _DAEMON
        raise CommandRefused(
            f"{data} holds no data of a daemon: nothing was looked at, and nothing stopped",
            hint=f"name the daemon's data directory: 'corral local --data {within} stop-all'"
            if _is_daemons(within)
            else "name the daemon's data directory ('data' in its settings, DIR/daemon after 'corral up --data DIR'): "
            "'corral local --data DIR stop-all'",
        )
    return live_instances(data)


def _is_daemons(data: pathlib.Path) -> bool:
    """Has a daemon used this directory?"""
    return any((data / name).exists() for name in _MADE_BY_DAEMONS)


def _offline(data: pathlib.Path, force: bool, config: str | None) -> list[dict[str, Any]]:
    """With our own hands; only here the daemon's code is needed, which takes its time to load."""
    from corral.cli.roles import ended_by

    with ended_by():
        import asyncio

        from corral.daemon.orders.local_socket import as_item
        from corral.daemon.orders.offline_stop import stop_everything
        from corral.system.config import load_daemon
        from corral.system.logs import start_logging

        path = pathlib.Path(config) if config else None
        settings, _ = load_daemon(path, os.environ, {"data": str(data)})
        with start_logging(role="local", directory=data / "logs", level="WARN", format="human"):
            runs = asyncio.run(stop_everything(settings, force=force))
        return [as_item(run) for run in runs]


def _show(output: str, item: dict[str, Any]) -> None:
    about = item.get("summary") or item.get("reason") or ""
    show_done(output, item, f"{item['id']} is {item['state']}" + (f": {about}" if about else ""))


_NAME = "daemon.sock"


def ask(data: pathlib.Path, verb: str, **fields: Any) -> dict[str, Any]:
    """The daemon's answer; CommandRefused with its reason, Unreachable when there is no daemon."""
    with _connect(data) as connection, connection.makefile("rwb") as stream:
        try:
            stream.write(json.dumps({"verb": verb, **fields}).encode() + b"\n")
            stream.flush()
            line = stream.readline()
        except OSError as error:
            raise Unreachable(f"the daemon of {data} hung up: {error.strerror or error}") from None
    if not line:
        raise Unreachable(f"the daemon of {data} ended before it answered", hint="see its log")
    answer: dict[str, Any] = json.loads(line)
    if not answer.get("ok"):
        raise CommandRefused(
            str(answer.get("message", "refused")),
            hint=answer.get("hint"),
            code=str(answer.get("code", "")),
        )
    return answer


def is_served(data: pathlib.Path) -> bool:
    """Does a daemon listen there?"""
    with contextlib.suppress(Unreachable):
        _connect(data).close()
        return True
    return False


def _connect(data: pathlib.Path) -> socket.socket:
    """Through a descriptor of the directory: the path may be longer than an address can hold."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = -1
    try:
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        connection.connect(f"/proc/self/fd/{directory}/{_NAME}")
    except PermissionError:
        connection.close()
        raise CommandRefused(
            f"the daemon of {data} belongs to another user", hint="run this as that user"
        ) from None
    except OSError as error:
        connection.close()
        raise Unreachable(
            f"no daemon serves {data}: {error.strerror or error}",
            hint="start it, or check --data; 'corral local --data DIR stop-all' works without",
        ) from None
    finally:
        if directory >= 0:
            os.close(directory)
    return connection
