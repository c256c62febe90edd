"""Secrets in command lines: which lines may hold one, and a line without them. For what is kept: histories and the audit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from corral.domain.sensitive_fields import HIDDEN
from corral.domain.urls import shown_text

_WORDS: Final = r"pass(?:word|wd|phrase)|secret|bearer|private.key|api.?key"
_CREDENTIALS: Final = r"token|join|recovery-code|first-admin"
_ASSIGNMENTS: Final = r"var|set"
_SECRET: Final = re.compile(
    rf"corral_|--(?:{_CREDENTIALS})\b(?!-)|--(?:{_ASSIGNMENTS})\b|{_WORDS}", re.IGNORECASE
)
"""What stands in lines that may hold a secret: our credentials, options that take one or any value, and words for one."""
_OPTION: Final = re.compile(
    rf"--(?:(?:{_CREDENTIALS})|({_ASSIGNMENTS})|[^=]*(?:{_WORDS})[^=]*(?<!-file)(?<!-names))(?:=(.*))?",
    re.IGNORECASE | re.DOTALL,
)
_NAMED: Final = re.compile(rf"(.*?(?:{_WORDS})[^=:\s]*[=:\s]\s*)(.*)", re.IGNORECASE | re.DOTALL)


def may_hold_secret(line: str) -> bool:
    """Whether a line is better not kept as it is."""
    return _SECRET.search(line) is not None or shown_text(line) != line


def without_secrets(line: str, words: Sequence[str]) -> str:
    """The line, whose words these are, with ••• in place of values that may be secret: those of options that take
    one or any value, of names that speak of one, words behind such a word, and credentials of ours. Addresses are without
    user, password, query and fragment."""
    if not may_hold_secret(line) and not may_hold_secret(
        " ".join(words)
    ):  # quotes may part a word of the line
        return line
    return " ".join(_shown([shown_text(word) for word in words]))


def _shown(words: Sequence[str]) -> Iterator[str]:
    hides_next = names_next = False
    for word in words:
        if hides_next:
            yield _assigned(word) if names_next else HIDDEN
            hides_next = False
            continue
        option, named = _OPTION.fullmatch(word), _NAMED.fullmatch(word)
        hides_next = names_next = False
        if option is not None and option[2] is not None:
            shown = _assigned(option[2]) if option[1] else HIDDEN
            yield f"{word[: -len(option[2]) or None]}{shown}"
        elif option is not None:
            yield shlex.quote(word)
            hides_next, names_next = True, bool(option[1])
        elif "corral_" in word:
            yield HIDDEN
        elif named is not None:
            yield f"{shlex.quote(named[1])}{HIDDEN}"
        else:
            yield shlex.quote(word)
            hides_next = re.fullmatch(_WORDS, word, re.IGNORECASE) is not None


def _assigned(word: str) -> str:
    """NAME=VALUE with its name."""
    name, sign, _ = word.partition("=")
    return f"{shlex.quote(name)}={HIDDEN}" if sign and "corral_" not in name else HIDDEN
