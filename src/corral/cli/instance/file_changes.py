"""`corral instance put|rm|mv|mkdir|unpack`: changes of an instance's files."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.instance.waits import INSTANCES
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import show_done
from corral.cli.terminal.standard_input import refuse_lines_of_console
from corral.errors import counted

CHANGED: Final = "FILE_CHANGED"
NOT_SUPPORTED: Final = "NOT_SUPPORTED"
PLAIN: Final = "644"
EXECUTABLE: Final = "755"
MODES: Final = (PLAIN, EXECUTABLE, "444", "555")
CHANGE_SECONDS: Final = 200.0
"""A little more than a node has for a change."""
_BLOCK: Final = 256 * 1024
_ORDER: Final = "the path in the instance comes first, the file on this machine second: 'corral instance put ID PATH FILE'"

if_match_option = click.option(
    "--if-match",
    metavar="DIGEST",
    help="Only if the file has this SHA-256; 'none': if there is no such file.",
)


def files_path(id: str, *rest: str) -> str:
    return "/".join((f"{INSTANCES}/{segment(id)}/files", *rest))


def condition(if_match: str | None) -> dict[str, str]:
    """The header of a digest that is required."""
    if if_match is None:
        return {}
    return {"If-None-Match": "*"} if if_match == "none" else {"If-Match": f'"{if_match}"'}


@click.command("put")
@click.argument("id")
@click.argument("path")
@click.argument("source", required=False, metavar="[FILE]")
@if_match_option
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="Its permissions; otherwise a FILE that is executable stays so, and others keep those of the file before.",
)
@api_command
def put_file(
    session: ApiSession, id: str, path: str, source: str | None, if_match: str | None, mode: str | None
) -> None:
    """Write FILE, or standard input ('-'), to PATH of an instance.

    FILE is one of this machine.
    """
    with opened_source(source or "-") as file:
        if source is None and not os.fstat(file.fileno()).st_size:
            raise WrongUsage(
                "no FILE was named, and standard input is empty",
                hint=f"nothing was written; {_ORDER}, or '-' for standard input, whatever it has",
            )
        if mode is None and source not in (None, "-") and is_executable(file):
            made = send_with_mode(session, id, path, file, condition(if_match), mode=EXECUTABLE)
        else:
            made = send(session, id, path, file, condition(if_match), mode=mode)
    same = "" if made.get("changed") else ", as before"
    show_done(session.output, made, f"'{path}' has {counted(made['size'], 'byte')}{same}", name="digest")


def is_executable(file: IO[bytes]) -> bool:
    return bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)


def send_with_mode(
    session: ApiSession, id: str, path: str, file: IO[bytes], headers: dict[str, str], *, mode: str | None
) -> Any:
    """As `send`, and without the mode, which is said, where the node's daemon does not know modes."""
    try:
        return send(session, id, path, file, headers, mode=mode)
    except CommandRefused as refusal:
        if mode is None or refusal.code != NOT_SUPPORTED:
            raise
        file.seek(0)
        made = send(session, id, path, file, headers)
        note(f"'{path}' has not got the mode {mode}: the daemon of its node has to be updated for that")
        return made


def send(
    session: ApiSession,
    id: str,
    path: str,
    file: IO[bytes],
    headers: dict[str, str],
    *,
    mode: str | None = None,
) -> Any:
    """Send an open file as it is read."""
    from corral.cli.api.transfers import blocks
    from corral.cli.terminal.progress_line import Bar

    size = os.fstat(file.fileno()).st_size
    with Bar(f"uploading {path}", size) as bar:
        params = {"path": path} | ({"mode": mode} if mode else {})
        return session.client.upload(
            files_path(id, "content"), blocks(file, bar), size=size, params=params, headers=headers
        )


@contextlib.contextmanager
def opened_source(source: str) -> Iterator[IO[bytes]]:
    """A file to be sent. What comes through a pipe is gathered on disk first: its size is told before."""
    if source == "-":
        refuse_lines_of_console()
        with _gathered(sys.stdin.buffer) as gathered:
            yield gathered
        return
    try:
        file = pathlib.Path(source).expanduser().open("rb")
    except OSError as error:
        raise WrongUsage(
            f"cannot read {source}: {error.strerror}",
            hint=f"nothing was written; {_ORDER}",
        ) from error
    with file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield file
            return
        if os.path.samestat(os.fstat(file.fileno()), os.fstat(sys.stdin.fileno())):
            refuse_lines_of_console()
        with _gathered(file) as gathered:
            yield gathered


@contextlib.contextmanager
def _gathered(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(prefix="corral-put-") as file:
        while block := stream.read(_BLOCK):
            file.write(block)
        file.flush()
        file.seek(0)
        yield file


@click.command("rm")
@click.argument("id")
@click.argument("path")
@click.option("-r", "--recursive", is_flag=True, help="A directory with everything in it.")
@click.option("--if-match", metavar="DIGEST", help="Only if the file has this SHA-256.")
@yes_option
@api_command
def remove_file(
    session: ApiSession, id: str, path: str, recursive: bool, if_match: str | None, yes: bool
) -> None:
    """Delete a file or a directory of an instance."""
    if recursive:
        confirm(f"delete '{path}' of instance '{id}' with everything in it", yes=yes)
    body: dict[str, object] = {"path": path, "recursive": recursive}
    if if_match is not None:
        body["digest"] = if_match
    done = session.client.post(files_path(id, "delete"), body, timeout=CHANGE_SECONDS)
    show_done(session.output, done, f"'{path}' is deleted", name="path")


@click.command("mv")
@click.argument("id")
@click.argument("path")
@click.argument("to")
@click.option("--replace", is_flag=True, help="Replace a file that is there.")
@api_command
def move_file(session: ApiSession, id: str, path: str, to: str, replace: bool) -> None:
    """Rename a file or a directory of an instance."""
    done = session.client.post(
        files_path(id, "rename"), {"path": path, "to": to, "replace": replace}, timeout=CHANGE_SECONDS
    )
    show_done(session.output, done, f"'{path}' is '{to}' now", name="to")


@click.command("mkdir")
@click.argument("id")
@click.argument("path")
@api_command
def make_directory(session: ApiSession, id: str, path: str) -> None:
    """Make a directory of an instance, and those above it."""
    done = session.client.post(files_path(id, "mkdir"), {"path": path})
    there = "is there" if done.get("changed") else "was there already"
    show_done(session.output, done, f"'{path}' {there}", name="path")


@click.command("unpack")
@click.argument("id")
@click.argument("path")
@click.argument("to", required=False, default="", metavar="[DIRECTORY]")
@click.option("--replace", is_flag=True, help="Replace files that are there.")
@api_command
def unpack(session: ApiSession, id: str, path: str, to: str, replace: bool) -> None:
    """Unpack a tar.gz or zip that lies in an instance's directory."""
    body = {"path": path, "to": to, "replace": replace}
    done = session.client.post(files_path(id, "unpack"), body, timeout=CHANGE_SECONDS)
    show_done(session.output, done, f"{done['entries']} files and directories unpacked", name="path")
