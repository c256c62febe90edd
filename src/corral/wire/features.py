"""Optional parts of the protocol. Each side names what it knows; what both know is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BATCH: Final = "batch"
"""Several envelopes in one frame."""
SPOOL: Final = "spool"
"""Numbered, confirmed delivery of what a node must not lose."""
RENEW: Final = "renew"
"""Certificate renewal over the stream."""
LOG_LEVEL: Final = "log-level"
"""The controller may switch the daemon's log level."""
DATA: Final = "data"
"""Bulk transfer by DataService on a second channel."""
CONSOLE: Final = "console"
"""Console batches with offsets and acknowledgements, queries, and acknowledgements of commands; else one
ConsoleOutput a line, and a command that was sent was accepted."""
TEMPLATES: Final = "templates"
"""Template versions by hash, manifests and deltas, bundles of contents, saving files back; else whole
TemplateData frames. Needs DATA."""
WORKLOAD: Final = "workload"
"""The controller hands on what workloads say about themselves."""
FILES: Final = "files"
"""Looking into an instance's files: a walk may begin beneath a path and go on where another ended, a read may begin
at an offset; else nobody is asked for files."""

MODULES: Final = "modules"
"""Module sets with intents and settings in the handshake, offers in place of inline archives, orders to
modules, numbered events, events from nodes, capability calls, figures of modules; else the published frames:
archives inline, up to what a frame carries. Needs DATA."""

TICKETS: Final = "tickets"
"""A start brings a ticket, which the node gives back with the runs of that start: by it a controller whose store
was put back to an earlier state knows what it had ordered. Else only what a record names is taken for ours."""

PORTIONS: Final = "portions"
"""A handshake that lists more running instances than one frame may hold goes on in HandshakePortions; else such a
handshake is refused."""

COMMAND_IDS: Final = "command-ids"
"""A command has an id of its own, and the node puts it into the run's input once, however often it is sent; else
a command that may have arrived is not sent again."""

RUNS: Final = "runs"
"""Asked for its consoles, a node also tells which runs of an instance it has, and finds a place by its time; else
times are compared on the controller, and runs that were not reported are not known. Needs CONSOLE."""

RUN_ENDS: Final = "run-ends"
"""The controller may ask how runs ended whose end it confirmed and has forgotten since; else it never learns that."""

FEATURES: Final = (
    BATCH,
    SPOOL,
    RENEW,
    LOG_LEVEL,
    DATA,
    CONSOLE,
    TEMPLATES,
    WORKLOAD,
    FILES,
    MODULES,
    TICKETS,
    PORTIONS,
    COMMAND_IDS,
    RUNS,
    RUN_ENDS,
)


def common(theirs: Iterable[str]) -> frozenset[str]:
    """The features that hold on a stream with this peer."""
    return frozenset(FEATURES) & frozenset(theirs)
