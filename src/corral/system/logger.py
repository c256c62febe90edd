"""The five log levels, the logger of our own code, and the quota of a repeated record, which must not push
everything else out of the log."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog

from corral.errors import Code, unknown_choice
from corral.system.clock import Clock

TRACE: Final = 5
LEVELS: Final = {"TRACE": TRACE, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40}
FIELDS_ATTRIBUTE: Final = "corral_fields"
"""The attribute with the bound fields on a stdlib record: one name, so that none can collide."""


def level_name(number: int) -> str:
    """Our name for a level of the standard library, which has more of them."""
    return next((name for name, least in reversed(LEVELS.items()) if number >= least), "TRACE")


def level_number(level: str) -> int:
    """Refuses a name that is not one of the five, and lists them."""
    if level not in LEVELS:
        raise unknown_choice("log level", level, LEVELS, code=Code.INVALID_FIELD, field="level")
    return LEVELS[level]


class Logger(structlog.BoundLoggerBase):
    """Logs dotted events with fields: `log.info("node.online", node=node_id)`.

    A level that is off costs one check and builds nothing.
    """

    _logger: logging.Logger

    def trace(self, event: str, **fields: Any) -> None:
        self._emit(TRACE, event, fields)

    def debug(self, event: str, **fields: Any) -> None:
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._emit(logging.ERROR, event, fields)

    def critical(self, event: str, **fields: Any) -> None:
        """Shown as ERROR: there is no sixth level; libraries call this."""
        self._emit(logging.CRITICAL, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        fields.setdefault("exc_info", True)
        self._emit(logging.ERROR, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        _, named = self._process_event(level_name(level).lower(), event, fields)
        self._logger.log(level, **named)


def _to_stdlib(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """The last processor: the arguments of `logging.Logger.log`."""
    return {
        "msg": event.pop("event"),
        "exc_info": event.pop("exc_info", None),
        "extra": {FIELDS_ATTRIBUTE: dict(event)},
    }


PROCESSORS: Final = (structlog.contextvars.merge_contextvars, _to_stdlib)


def logger(name: str) -> Logger:
    """A logger for a module; it may be made at import, long before `start_logging` runs."""
    made: Logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=PROCESSORS,
        wrapper_class=Logger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return made


def log_plainly(stream: TextIO | None = None, *, least: int = logging.NOTSET) -> None:
    """Where records go while no log is started, to `stream` or standard output. structlog's own setting renders the
    values of variables in tracebacks where `rich` is installed: they may be secrets."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.StackInfoRenderer(),
            structlog.dev.set_exc_info,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )


SECONDS: Final = 1.0
_MOST_KINDS: Final = 1000


class LogQuota:
    """One line a second of each kind; the next one contains how many were left out.

    ```python
    if (unsaid := quota.admit("module_task.failed", module_id)) is not None:
        _log.warning("module_task.failed", module=module_id, unsaid=unsaid)
    ```
    """

    def __init__(self, *, clock: Clock, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._kinds: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()

    def admit(self, *kind: str) -> int | None:
        """None: log nothing now. Otherwise how many of this kind were left out since the last one."""
        now = self._clock.monotonic()
        quiet_until, unsaid = self._kinds.pop(kind, (now, 0))
        if now < quiet_until:
            self._kinds[kind] = quiet_until, unsaid + 1
            return None
        self._kinds[kind] = now + self._seconds, 0
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.popitem(last=False)
        return unsaid
