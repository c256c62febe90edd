"""Values of secrets, kept out of every text that leaves the node: their names stand in their place. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from corral.domain.plans import Plan
from corral.domain.variable_types import VariableSpec, VariableType
from corral.errors import Code, Rejected

_LINE: Final = 8
"""Of a secret with several lines, those with fewer characters say nothing."""


class SecretMask:
    """Puts `%NAME%` where a text holds the value of the secret NAME: as it is, as texts quote it, and line by
    line where it has several."""

    def __init__(self, secrets: Mapping[str, str] = {}) -> None:
        found: dict[str, str] = {}
        for name, value in secrets.items():
            for form in _forms(value):
                found.setdefault(form, f"%{name}%")
        self.hidden: tuple[tuple[str, str], ...] = tuple(
            sorted(found.items(), key=lambda pair: -len(pair[0]))
        )
        """Each with its name; longest first: one secret may hold another."""

    def __bool__(self) -> bool:
        return bool(self.hidden)

    def __or__(self, other: SecretMask) -> SecretMask:
        both = SecretMask()
        both.hidden = tuple(sorted({*self.hidden, *other.hidden}, key=lambda pair: (-len(pair[0]), pair)))
        return both

    def __call__(self, text: str) -> str:
        for value, name in self.hidden:
            text = text.replace(value, name)
        return text


def _forms(value: str) -> Iterable[str]:
    if not value:
        return
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines if len(line.strip()) >= _LINE)


def secret_names(types: Mapping[str, VariableSpec]) -> frozenset[str]:
    return frozenset(name for name, spec in types.items() if spec.type is VariableType.SECRET)


def names_within(text: str, names: Iterable[str]) -> list[str]:
    """Those of these variables that `text` would be given the value of."""
    return [name for name in names if f"%{name}%" in text]


def refuse_in_command(plan: Plan) -> None:
    """SECRET_EXPOSED with the field, for a plan that names a secret in its command line: every user of the host
    can read the process list. The host address gets there by `%HOST_ADDRESS%`."""
    names = sorted(secret_names(plan.variable_types))
    if not names:
        return
    jvm = plan.jvm
    texts = [
        *((f"command/{position}", text) for position, text in enumerate(plan.command)),
        *((f"args/{position}", text) for position, text in enumerate(plan.args)),
        *((f"jvm/args/{position}", text) for position, text in enumerate(jvm.args if jvm else ())),
        *((("jvm/jar", jvm.jar), ("jvm/java", jvm.java)) if jvm else ()),
        ("host_address", plan.host_address),
    ]
    for field, text in texts:
        if found := names_within(text, names):
            raise Rejected(
                Code.SECRET_EXPOSED,
                f"{field} holds the secret %{found[0]}%, and every user of the node can read command lines",
                hint="pass it in env, or in a file that 'substitute' or a patch fills in",
                field=field,
            )
