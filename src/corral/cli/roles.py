"""What `corral controller` and `corral daemon` have in common."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from corral.cli.failure import BadConfiguration, Refused
from corral.errors import CorralError

R = TypeVar("R")


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
def ended_by(kind: type[Refused] = Refused) -> Iterator[None]:
    """A failure of ours on the way up is told in two lines, not in forty."""
    try:
        yield
    except CorralError as error:
        raise kind(error.message, hint=error.hint, code=error.code.name) from error


def settings_read() -> contextlib.AbstractContextManager[None]:
    """Settings that are refused end a role with a code of their own."""
    return ended_by(BadConfiguration)
