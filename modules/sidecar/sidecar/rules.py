"""The settings, typed: which processes belong beside which instances."""

from __future__ import annotations

import re

import msgspec

from corral.sdk import InstanceHandle

EVERY_GROUP = "*"
_VARIABLE = re.compile(r"\{(instance|group|port|pid|work_dir)\}")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One process beside each instance of a group."""

    group: str = EVERY_GROUP
    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    restart: bool = True

    def filled(self, handle: InstanceHandle) -> Rule:
        """With what stands for the variables."""
        return msgspec.structs.replace(
            self,
            command=tuple(_filled(word, handle) for word in self.command),
            env={name: _filled(value, handle) for name, value in self.env.items()},
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Two rules of one group and name are a mistake: msgspec.ValidationError."""

    rules: tuple[Rule, ...] = ()
    check_seconds: float = 2.0

    def __post_init__(self) -> None:
        names = [(rule.group, rule.name) for rule in self.rules]
        for group, name in names:
            if names.count((group, name)) > 1:
                raise ValueError(f"two rules of group '{group}' are called '{name}'")

    def rules_for(self, handle: InstanceHandle) -> dict[str, Rule]:
        """By name, filled in; a rule of the instance's own group goes before one of every group."""
        return {
            rule.name: rule.filled(handle)
            for group in (EVERY_GROUP, handle.group)
            for rule in self.rules
            if rule.group == group
        }


def _filled(text: str, handle: InstanceHandle) -> str:
    values = {
        "instance": handle.instance_id,
        "group": handle.group,
        "port": str(handle.port),
        "pid": str(handle.pid),
        "work_dir": handle.work_dir,
    }
    return _VARIABLE.sub(lambda found: values[found[1]], text)
