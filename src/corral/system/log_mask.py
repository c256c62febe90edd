"""Masking of secrets in logs: values under secret names and texts that look like credentials."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from corral.domain.secret_forms import forms

MASK: Final = "***"
MAX_VALUE: Final = 4096
_SHORTEST: Final = 4
_MOST_VALUES: Final = 2000

_SECRET_WORDS: Final = frozenset(
    {
        "token",
        "tokens",
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "authorization",
        "cookie",
        "credential",
        "credentials",
        "apikey",
    }
)
_HARMLESS_ENDS: Final = frozenset({"id", "ids", "name", "names", "kind", "count", "at", "seconds", "path"})
_WORDS: Final = re.compile(r"[a-z0-9]+|[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")

_API_TOKEN: Final = re.compile(r"corral_[a-z_]*([A-Z0-9-][A-Za-z0-9_.-]*)?")
_SHORTEST_TOKEN: Final = len("corral_") + 12
_TEXTS: Final = (
    (re.compile(r"corral-join-[0-9]+\.[A-Za-z0-9_=-]+"), f"corral-join-{MASK}"),
    (re.compile(r"cw1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"), f"cw1.{MASK}"),  # of a run
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)(ticket(?:=|%(?:25){0,3}3d))[^\s&;\"'<>]+"), rf"\1{MASK}"),  # of a stream
    (re.compile(r"(://[^\s:/@]*):[^\s/@]+@"), rf"\1:{MASK}@"),
    (
        re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL),
        rf"-----BEGIN \1----- {MASK}",
    ),
)
"""Records hold texts of any length that others chose: no expression may read the same piece of one from many places."""
_HINTS: Final = ("corral", "cw1.", "bearer", "basic", "ticket", "://", "private key")


class HiddenValues:
    """Secrets that this process has read, by their values: no log shows them, whatever text contains them.
    The newest are kept. Short ones are not: they would mask half of every text."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, None] = OrderedDict()
        self._changing = threading.Lock()
        self._longest_first: tuple[str, ...] = ()

    def add(self, value: str) -> None:
        """May be called by any thread."""
        found = set(forms(value))
        with self._changing:
            for form in found:
                if len(form) >= _SHORTEST:
                    self._values[form] = None
                    self._values.move_to_end(form)
            while len(self._values) > _MOST_VALUES:
                self._values.popitem(last=False)
            self._longest_first = tuple(sorted(self._values, key=len, reverse=True))

    def hide(self, text: str) -> str:
        for value in self._longest_first:
            if value in text:
                text = text.replace(value, MASK)
        return text


HIDDEN_VALUES: Final = HiddenValues()
"""One per process, as its log is."""


def is_secret_name(name: str) -> bool:
    """`join_token` and `X-Api-Secret` are secret, `token_id` and `tokens_count` are not."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS_ENDS:
        return False
    if words[-1] == "key" and len(words) > 1 and words[-2] in ("private", "api", "cluster"):
        return True
    return not _SECRET_WORDS.isdisjoint(words)


def mask_text(text: str) -> str:
    """The text without anything that looks like a credential, or is a secret that was read here."""
    text = HIDDEN_VALUES.hide(text)
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text  # nearly all of them; six expressions on every record are slow
    text = _API_TOKEN.sub(_masked_token, text)
    for pattern, replacement in _TEXTS:
        text = pattern.sub(replacement, text)
    return text


def _masked_token(found: re.Match[str]) -> str:
    """A metric's name has neither digit nor capital, so it stays readable."""
    return f"corral_{MASK}" if found[1] and len(found[0]) >= _SHORTEST_TOKEN else found[0]


def mask_fields(fields: Mapping[str, object]) -> dict[str, str]:
    """Bound fields as texts, each cut to a bound, with what is secret hidden."""
    return {str(name): mask_field(str(name), value) for name, value in fields.items()}


def mask_field(name: str, value: object) -> str:
    if is_secret_name(name):
        return MASK
    text = mask_text(value if isinstance(value, str) else str(_hide_inside(value)))
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."


def _hide_inside(value: object, depth: int = 0) -> object:
    """A copy of a nested value in which the values of secret names are masked."""
    if depth > 8:
        return "..."
    if isinstance(value, Mapping):
        return {
            name: MASK if is_secret_name(str(name)) else _hide_inside(inner, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_hide_inside(inner, depth + 1) for inner in value]
    return value
