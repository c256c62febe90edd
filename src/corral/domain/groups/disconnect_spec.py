"""The field `disconnect` of a group's document: what happens to instances whose node has no connection to the controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from corral.domain.spec import Seconds, Spec, invalid

STOP_MARGIN_SECONDS: Final = 10
"""Between the last moment at which a node may still end an instance and its replacement: clocks of two machines run
differently, and a kill takes its time."""


class DisconnectSpec(Spec, frozen=True, kw_only=True):
    """Both times are counted from the end of the connection, each by the clock of its own side."""

    replace_after_seconds: Seconds | None = 60
    """The controller replaces an instance whose node is away for so long by another one; None: never."""
    stop_after_seconds: Seconds = 0
    """The node stops the instance after so long without a controller; 0: never."""


def check_disconnect(disconnect: DisconnectSpec, *, ladder: Iterable[float], static: bool) -> None:
    """Refuse a replacement that could run beside an instance that its node is about to stop. `ladder`: the seconds that each
    rung of the stop ladder waits. Static instances are never replaced."""
    replace, stop = disconnect.replace_after_seconds, disconnect.stop_after_seconds
    if replace is None or not stop or static:
        return
    climb = sum(ladder)
    least = stop + climb + STOP_MARGIN_SECONDS
    if replace < least:
        raise invalid(
            "disconnect/replace_after_seconds",
            f"{replace} s is too early: its node may need until {least:g} s to end it "
            f"({stop} stop_after_seconds, {climb:g} for the stop ladder, {STOP_MARGIN_SECONDS} to be sure)",
            f"set it to {-(-least // 1):.0f} or more or to null, or shorten stop_after_seconds or the stop ladder",
        )
