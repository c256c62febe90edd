"""Features: optional parts of the protocol. Each side names those it knows in the handshake; what both know
is used.

`PeerSupport` is the meaning of a set of features, computed here once for a stream and nowhere else: what the
edge of a stream can translate or answer it does, and other code checks the one property it is about to use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

BATCH: Final = "batch"
"""Several envelopes in one frame."""
SPOOL: Final = "spool"
"""Numbered, confirmed delivery of records that a node must not lose."""
RENEW: Final = "renew"
"""Certificate renewal over the stream."""
LOG_LEVEL: Final = "log-level"
"""The controller may switch the daemon's log level."""
DATA: Final = "data"
"""Bulk transfer by DataService on a second channel."""
CONSOLE: Final = "console"
"""Console batches with offsets and acknowledgements, queries, and acknowledgements of commands; otherwise one
ConsoleOutput per line, and a command that was sent counts as accepted."""
TEMPLATES: Final = "templates"
"""Template versions by hash, manifests and deltas, bundles of contents, saving files back; otherwise whole
TemplateData frames. Needs DATA."""
WORKLOAD: Final = "workload"
"""The controller forwards the reports of workloads about themselves."""
FILES: Final = "files"
"""Reading an instance's files: a walk may begin below a path and continue where another ended, a read may
begin at an offset; otherwise no files are requested."""

MODULES: Final = "modules"
"""Module sets with intents and settings in the handshake, offers in place of inline archives, orders to
modules, numbered events, events from nodes, capability calls, metrics of modules; otherwise the published
frames: archives inline, up to the size of a frame. Needs DATA."""

TICKETS: Final = "tickets"
"""A start has a ticket, which the node returns with the runs of that start: by it a controller whose store
was restored to an earlier state recognises its own orders. Otherwise only runs that a record names are
recognised."""

PORTIONS: Final = "portions"
"""A handshake that lists more running instances than one frame may hold continues in HandshakePortions;
otherwise such a handshake is refused."""

COMMAND_IDS: Final = "command-ids"
"""A command has an id of its own, and the node writes it into the run's input once, however often it is sent;
otherwise a command that may have arrived is not sent again."""

RUNS: Final = "runs"
"""In console queries a node also lists the runs of an instance that it has, and finds an offset by its time;
otherwise times are compared on the controller, and runs that were not reported are not known. Needs CONSOLE.
"""

RUN_ENDS: Final = "run-ends"
"""The controller may request the ends of runs that it confirmed and has lost since; otherwise they stay
unknown."""

CONTACT: Final = "contact"
"""The node may ping the controller: an answer proves that there was one when the ping was sent. Otherwise an
open session counts as that proof."""

DRAIN: Final = "drain"
"""The node knows the modes of ShutdownNode, and takes no new runs while it is drained; otherwise the frame has no mode,
and is sent when the node is empty or at the deadline of its drain."""

FILE_CHANGES: Final = "file-changes"
"""Changes of an instance's files, whole files and directories over the second channel, digests and modes in listings;
otherwise files are only read, in parts. Needs DATA and FILES."""
FILE_MODES: Final = "file-modes"
"""A file is written with permissions that the controller names; otherwise it keeps those of the file before. Needs FILE_CHANGES."""
WORLDS: Final = "worlds"
"""The directory of a static instance is used without a run of it on the node; otherwise such an instance has no files. Needs
FILE_CHANGES."""
NODE_COMMANDS: Final = "node-commands"
"""The node answers commands about itself; otherwise it is not asked."""
NOT_READY: Final = "not-ready"
"""A workload may also report that it is not ready any more; otherwise that is refused. Needs WORKLOAD."""
EVENT_NAMES: Final = "event-names"
"""Types of events have the names CAPABILITY_CLEARED and CAPABILITY_REBOUND; otherwise those that they had before. Needs MODULES."""

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
    CONTACT,
    DRAIN,
    FILE_CHANGES,
    FILE_MODES,
    WORLDS,
    NODE_COMMANDS,
    NOT_READY,
    EVENT_NAMES,
)


def common(theirs: Iterable[str]) -> frozenset[str]:
    """The features in use on a stream with this peer."""
    return frozenset(FEATURES) & frozenset(theirs)


class PeerSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is True between two peers of this version. The default is a published peer."""

    batches: bool = False
    """Several messages in one frame."""
    confirmations: bool = False
    """Numbered records, confirmed when they are stored."""
    renewal: bool = False
    """Certificates are renewed over the stream."""
    log_levels: bool = False
    bulk: bool = False
    """A second channel for large transfers."""
    consoles: bool = False
    """Console batches with offsets, and answers to commands."""
    console_queries: bool = False
    """Parts of consoles that lie on the node, sent over the second channel."""
    run_lists: bool = False
    """Runs of an instance that the node has, and places found by time."""
    templates: bool = False
    """Template versions by hash, contents over the second channel, and files saved back."""
    files: bool = False
    """Queries about the files of an instance."""
    modules: bool = False
    """Sets of modules with intents, orders to them, numbered events, calls and metrics."""
    tickets: bool = False
    command_ids: bool = False
    """A command with an id is executed once, however often it is sent."""
    run_ends: bool = False
    """Ends of runs are reported again on request."""
    contact: bool = False
    """The node's pings are answered."""
    drain: bool = False
    """Modes of ShutdownNode, and their answers."""
    file_changes: bool = False
    """Files of instances are written, and sent whole."""
    file_modes: bool = False
    """Files of instances are written with the permissions that are named."""
    worlds: bool = False
    """Directories of static instances without a run."""
    node_commands: bool = False
    """Commands that the node answers from what it knows itself."""
    not_ready: bool = False
    """A workload's report that it is not ready any more."""
    event_names: bool = False
    """Types of events by their present names."""


def support_of(named: Iterable[str]) -> PeerSupport:
    """The support on a stream with a peer that names these features."""
    known = common(named)
    data, console = DATA in known, CONSOLE in known
    file_changes = data and FILES in known and FILE_CHANGES in known
    return PeerSupport(
        batches=BATCH in known,
        confirmations=SPOOL in known,
        renewal=RENEW in known,
        log_levels=LOG_LEVEL in known,
        bulk=data,
        consoles=console,
        console_queries=console and data,
        run_lists=console and data and RUNS in known,
        templates=data and TEMPLATES in known,
        files=FILES in known,
        modules=MODULES in known,
        tickets=TICKETS in known,
        command_ids=COMMAND_IDS in known,
        run_ends=RUN_ENDS in known,
        contact=CONTACT in known,
        drain=DRAIN in known,
        file_changes=file_changes,
        file_modes=file_changes and FILE_MODES in known,
        worlds=file_changes and WORLDS in known,
        node_commands=NODE_COMMANDS in known,
        not_ready=NOT_READY in known,
        event_names=EVENT_NAMES in known,
    )
