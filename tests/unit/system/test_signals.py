"""Names of signals: every number has one."""

from __future__ import annotations

import pytest

from corral.system.signals import signal_name


@pytest.mark.parametrize(
    ("number", "name"),
    [(9, "SIGKILL"), (34, "SIGRTMIN"), (40, "SIGRTMIN+6"), (64, "SIGRTMAX"), (32, "signal 32"), (0, "signal 0"),
     (500, "signal 500"), (-3, "signal -3")],
)  # fmt: skip
def test_every_number_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name
