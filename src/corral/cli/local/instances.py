"""`corral local`: instances of this machine, without any controller."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Final

import click

from corral.cli.failure import note
from corral.cli.local.daemon_socket import ask, is_served
from corral.cli.terminal.output import Column, output_option, show_done, show_list, state_column

COLUMNS: Final = (
    Column("ID", "id"),
    state_column("STATE", "state"),
    Column("PID", "pid"),
    Column("PORT", "port"),
    Column("RUN", "incarnation"),
    Column("REASON", lambda item: str(item.get("summary") or item.get("reason") or "-")),
)


@click.group()
@click.option(
    "--data",
    metavar="DIR",
    default="/var/lib/corral/daemon",
    show_default=True,
    help="The daemon's data directory.",
)
@click.pass_context
def local(ctx: click.Context, data: str) -> None:
    """Instances of this machine, by its daemon's own socket; no controller is asked."""
    ctx.obj = pathlib.Path(data).expanduser().absolute()


@local.command(name="list")
@output_option
@click.pass_obj
def list_(data: pathlib.Path, output: str) -> None:
    """What runs here, and what has ended."""
    show_list(output, ask(data, "list")["items"], columns=COLUMNS)


@local.command()
@click.argument("id")
@output_option
@click.pass_obj
def stop(data: pathlib.Path, id: str, output: str) -> None:
    """Stop an instance gracefully, and wait until nothing of it is left."""
    _show(output, ask(data, "stop", id=id)["item"])


@local.command()
@click.argument("id")
@output_option
@click.pass_obj
def kill(data: pathlib.Path, id: str, output: str) -> None:
    """Kill everything of an instance at once."""
    _show(output, ask(data, "kill", id=id)["item"])


@local.command()
@click.argument("id")
@output_option
@click.pass_obj
def restart(data: pathlib.Path, id: str, output: str) -> None:
    """Stop an instance and start it again as its next run."""
    _show(output, ask(data, "restart", id=id)["item"])


@local.command()
@click.argument("id")
@click.argument("line")
@output_option
@click.pass_obj
def command(data: pathlib.Path, id: str, line: str, output: str) -> None:
    """Write one line into an instance's input."""
    item = ask(data, "command", id=id, command=line)["item"]
    show_done(output, item, f"sent to {item['id']}")


@local.command(name="stop-all")
@click.option("--force", is_flag=True, help="Kill at once instead of stopping gracefully.")
@click.option("--config", metavar="FILE", help="The daemon's config file, when no daemon runs.")
@output_option
@click.pass_obj
def stop_all(data: pathlib.Path, force: bool, config: str | None, output: str) -> None:
    """Stop every instance and wait until nothing is left; works without a daemon, too."""
    served = is_served(data)
    items = ask(data, "stop-all", force=force)["items"] if served else _offline(data, force, config)
    ended = sum(item["state"] in ("STOPPED", "CRASHED") for item in items)
    done = {"items": items, "ended": ended}
    show_done(output, done, f"nothing runs: {ended} instances have ended", name="ended")
    if served:
        note(
            "the daemon still runs: a controller that it is connected to keeps the min of its groups, here unless the "
            "node is cordoned ('corral node cordon')"
        )


def _offline(data: pathlib.Path, force: bool, config: str | None) -> list[dict[str, Any]]:
    """With our own hands; only here the daemon's code is needed, which takes its time to load."""
    from corral.cli.roles import ended_by

    if not data.is_dir():
        return []
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
