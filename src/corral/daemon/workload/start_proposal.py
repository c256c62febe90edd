"""What modules are asked about a start, and what they may change of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from corral.sdk.instances import InstanceSpec


class StartValues(msgspec.Struct, frozen=True, kw_only=True):
    """Variables are replaced already."""

    jvm_args: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class StartRules(msgspec.Struct, frozen=True, kw_only=True):
    """How far modules may go with this command."""

    takes_jvm_args: bool = True
    fixed_args: int | None = 0
    """So many of `args`, from the first, say what is run and stay as they are; None: all of them."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A start, before its modules were asked."""

    spec: InstanceSpec
    rules: StartRules = StartRules()
    secrets: Mapping[str, str] = {}
    """Values by their variables: they are written down nowhere."""


def values_of(spec: InstanceSpec) -> StartValues:
    return StartValues(jvm_args=tuple(spec.jvm_args), args=tuple(spec.args), env=dict(spec.env))
