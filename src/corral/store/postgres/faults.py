"""The meaning of PostgreSQL errors: refused by the server, or a lost answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import asyncpg

from corral.domain.ids import Epoch
from corral.errors import Code, Rejected
from corral.store.store_errors import Fenced, StoreUnavailable

FENCED: Final = "CRF01"
"""Raised by `corral_check_fence`; the detail is the epoch of the fence."""

_CONFIGURATION: Final = ("28", "3D", "42501")
"""Wrong user or password, no such database, no right to it: waiting does not help."""

FAILURES: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that broke at an awkward moment
)


def ended_connection(error: BaseException) -> bool:
    """Whether the server may have executed the command although the answer is missing.

    A back end that is shut down may report so *after* it committed: class 57P counts as no answer.
    """
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(("08", "57P"))
    return True


def describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the database did not answer in time"
    return str(error) or type(error).__name__


def fence_error(error: BaseException, epoch: Epoch) -> Fenced | None:
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate == FENCED:
        return Fenced(epoch, int(error.detail))
    return None


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """For reads and leases: any failure is `StoreUnavailable`; the caller retries."""
    try:
        yield
    except FAILURES as error:
        raise StoreUnavailable(describe(error)) from error


@contextlib.contextmanager
def refusing_configuration(where: str) -> Iterator[None]:
    """At open: distinguish what an operator has to change from failures that may pass."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "").startswith(_CONFIGURATION):
            raise Rejected(
                Code.INVALID_CONFIG,
                f"{where} refuses us: {error}",
                hint="check user, password and database in store.url",
                field="store.url",
            ) from error
        raise StoreUnavailable(describe(error)) from error
    except FAILURES as error:
        raise StoreUnavailable(f"{where}: {describe(error)}") from error
