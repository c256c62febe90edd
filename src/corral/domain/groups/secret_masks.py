"""Masking of secret values in every text that leaves the node: their names take their place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from corral.domain.groups.plans import Plan
from corral.domain.secret_forms import SHORTEST_SEARCHED_LINE, forms, lines_of
from corral.domain.spec import VariableSpec, VariableType
from corral.errors import Code, Rejected


class SecretMask:
    """Puts `%NAME%` in place of the value of the secret NAME: as it is, as texts quote it, and line by line
    where it has several."""

    def __init__(self, secrets: Mapping[str, str] = {}, *, unknown: frozenset[str] = frozenset()) -> None:
        self.unknown = unknown
        """The secrets whose value is not known any more: a text may hold them all the same."""
        found: dict[str, str] = {}
        for name, value in secrets.items():
            for form in forms(value):
                found.setdefault(form, f"%{name}%")
        short = {
            line
            for value in secrets.values()
            for line in lines_of(value)
            if len(line) < SHORTEST_SEARCHED_LINE
        }
        self.hidden: tuple[tuple[str, str], ...] = tuple(
            sorted(found.items(), key=lambda pair: -len(pair[0]))
        )
        """Each with its name; longest first: one secret may hold another."""
        self.vague: frozenset[str] = frozenset(form for line in short for form in forms(line)).difference(
            secrets.values()
        )
        """Short lines of longer values among these: a file may hold them for any other reason."""

    def __bool__(self) -> bool:
        return bool(self.hidden)

    def __or__(self, other: SecretMask) -> SecretMask:
        both = SecretMask(unknown=self.unknown | other.unknown)
        both.hidden = tuple(sorted({*self.hidden, *other.hidden}, key=lambda pair: (-len(pair[0]), pair)))
        both.vague = frozenset(
            (self.vague | other.vague)
            - {value for mask in (self, other) for value, _ in mask.hidden if value not in mask.vague}
        )
        return both

    def __call__(self, text: str) -> str:
        for value, name in self.hidden:
            text = text.replace(value, name)
        return text


def secret_names(types: Mapping[str, VariableSpec]) -> frozenset[str]:
    return frozenset(name for name, spec in types.items() if spec.type is VariableType.SECRET)


def names_within(text: str, names: Iterable[str]) -> list[str]:
    """The variables among `names` whose value `text` would contain."""
    return [name for name in names if f"%{name}%" in text]


def refuse_in_command(plan: Plan) -> None:
    """SECRET_EXPOSED with the field, for a plan that names a secret in its command line: every user of the
    host can read the process list. The host address gets there by `%HOST_ADDRESS%`."""
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
