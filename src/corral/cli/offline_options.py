"""Options of commands on the controller's host that work without the API: which controller they mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from corral.system.controller_config import ControllerConfig

F = TypeVar("F", bound=Callable[..., Any])


def offline_options(command: F) -> F:
    """Give a command `data`, `store` and `config`."""
    for option in (
        click.option("--config", metavar="FILE", help="YAML file with its settings (CORRAL_CONFIG)."),
        click.option("--store", metavar="URL", help="sqlite or postgresql://…."),
        click.option("--data", metavar="DIR", help="Directory of the controller, which must not run."),
    ):
        command = option(command)
    return command


def offline_config(*, data: str | None, store: str | None, config: str | None) -> ControllerConfig:
    """The settings of that controller. Only warnings are logged, to stderr: what is printed is the answer."""
    import logging
    import pathlib

    from corral.system.config import load_controller
    from corral.system.logger import log_plainly

    path = config or os.environ.get("CORRAL_CONFIG")
    found, _ = load_controller(
        pathlib.Path(path) if path else None, os.environ, {"data": data, "store.url": store}
    )
    log_plainly(sys.stderr, least=logging.WARNING)
    return found
