"""What the peer of a control stream can do beyond the published protocol, asked by name.

Handshakes name features. What a pair of features means together is settled here, once for a stream, and nowhere
else: what the edge of a stream can translate or answer it does, and the rest asks for what it is about to use.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from corral.wire import features


class PeerSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is True between two of this version. The default is a published peer."""

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
    """Questions about the files of an instance."""
    modules: bool = False
    """Sets of modules with intents, orders to them, numbered events, calls and metrics."""
    tickets: bool = False
    command_ids: bool = False
    """A command with an id is executed once, however often it is sent."""
    run_ends: bool = False
    """Ends of runs are told again when they are asked for."""


def support_of(named: Iterable[str]) -> PeerSupport:
    """What holds on a stream with a peer that names these features."""
    known = features.common(named)
    data, console = features.DATA in known, features.CONSOLE in known
    return PeerSupport(
        batches=features.BATCH in known,
        confirmations=features.SPOOL in known,
        renewal=features.RENEW in known,
        log_levels=features.LOG_LEVEL in known,
        bulk=data,
        consoles=console,
        console_queries=console and data,
        run_lists=console and data and features.RUNS in known,
        templates=data and features.TEMPLATES in known,
        files=features.FILES in known,
        modules=features.MODULES in known,
        tickets=features.TICKETS in known,
        command_ids=features.COMMAND_IDS in known,
        run_ends=features.RUN_ENDS in known,
    )
