"""Which passwords are accepted: at least 12 characters, and not what everybody tries first. Nothing else is asked for:
no kinds of characters, no change after a time.

The second rule counts the parts that a password is made of. A common word, the name of its user, a year, a run of keys
(`qwertz`, `4321`) are one part each; any other character is one, and so are two digits. What repeats the characters
before it is none. Four parts or fewer are refused: `P@ssw0rd-2026!` has four, a random password of 12
characters has 12.

Passwords are compared in the normal form NFKC, as NIST SP 800-63B advises: the same password can be typed on keyboards
and systems that compose characters differently.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from corral.domain.accounts.common_passwords import WALKS, WORDS
from corral.errors import Code, Rejected

SHORTEST: Final = 12
LONGEST: Final = 256
"""Characters, before and after normalisation."""
LONGEST_BYTES: Final = 1024
FEWEST_PARTS: Final = 5
_LONGEST_PART: Final = 32
_SHORTEST_NAME: Final = 3
_SHORTEST_RUN: Final = 3
_REFUSED: Final = frozenset({"Cc", "Cs", "Cn"})
"""Control characters, which nobody can type; halves of characters; and what Unicode may yet define to have another
normal form."""
_LETTERS: Final = str.maketrans(
    {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s"}
)
_OTHER_LETTERS: Final = _LETTERS | str.maketrans({"1": "l", "!": "i", "8": "b", "9": "g"})
_YEAR: Final = re.compile(r"(?:19|20)[0-9]{2}")
_NAME_PART: Final = re.compile(r"[^\W_]+")


def normal_password(password: str, *, field: str = "password") -> str:
    """The form in which a password is hashed. INVALID_FIELD when it is too long to be looked at."""
    if len(password) <= LONGEST and len(password.encode("utf-8", "surrogatepass")) <= LONGEST_BYTES:
        normal = unicodedata.normalize("NFKC", password)
        if len(normal) <= LONGEST:
            return normal
    raise Rejected(
        Code.INVALID_FIELD,
        f"the password is longer than {LONGEST} characters or {LONGEST_BYTES} bytes",
        hint=f"use {SHORTEST} to {LONGEST} characters",
        field=field,
    )


def check_new_password(password: str, *, names: Iterable[str] = (), field: str = "password") -> str:
    """The normal form of a password that somebody wants to have. INVALID_FIELD says why it is refused; no message
    contains it. `names` are those that others know of the user: its own, its display name, the cluster's."""
    normal = normal_password(password, field=field)
    refused = next((sign for sign in normal if unicodedata.category(sign) in _REFUSED), None)
    if refused is not None:
        raise Rejected(
            Code.INVALID_FIELD,
            f"the password holds a character that not every keyboard or system has (U+{ord(refused):04X})",
            hint="leave it out",
            field=field,
        )
    if len(normal) < SHORTEST:
        raise Rejected(
            Code.INVALID_FIELD,
            f"the password has {len(normal)} characters, and at least {SHORTEST} are needed",
            hint="use a few words that do not belong together, or let a password manager make one",
            field=field,
        )
    if part_count(normal, names) < FEWEST_PARTS:
        raise Rejected(
            Code.INVALID_FIELD,
            "the password is among those that are tried first: it is made of common words, names, years, "
            "sequences or repetitions",
            hint="add a few uncommon words, or let a password manager make one",
            field=field,
        )
    return normal


def part_count(password: str, names: Iterable[str] = (), *, limit: int = FEWEST_PARTS) -> int:
    """The fewest parts that make up the password, or `limit` if there are more."""
    text = password.casefold()
    spellings = (text, text.translate(_LETTERS), text.translate(_OTHER_LETTERS))
    words = WORDS | _parts_of_names(names)
    seen: set[int] = set()
    level = [0]  # where so many parts may end
    for count in range(limit):
        following: list[int] = []
        while level:
            start = level.pop()
            if start in seen:
                continue
            seen.add(start)
            if start == len(text):
                return count
            for end in range(start + 1, min(start + _LONGEST_PART, len(text)) + 1):
                if text.startswith(text[start:end], max(0, 2 * start - end), start):
                    level.append(end)  # repetitions are free
                elif _is_one_part(spellings, start, end, words):
                    following.append(end)
        level = following
    return limit


def _is_one_part(spellings: Iterable[str], start: int, end: int, words: frozenset[str]) -> bool:
    found = [spelling[start:end] for spelling in spellings]
    part, length = found[0], end - start
    if length == 1 or (length == 2 and part.isdigit()):
        return True
    if part in _walks() or not words.isdisjoint(found):
        return True
    return length == 4 and _YEAR.fullmatch(part) is not None


@functools.lru_cache(maxsize=1)
def _walks() -> frozenset[str]:
    return frozenset(
        keys[start:end]
        for walk in WALKS
        for keys in (walk, walk[::-1])
        for start in range(len(keys))
        for end in range(start + _SHORTEST_RUN, len(keys) + 1)
    )


def _parts_of_names(names: Iterable[str]) -> frozenset[str]:
    whole = [unicodedata.normalize("NFKC", each).casefold() for each in names]
    parts = [part for each in whole for part in (each, *_NAME_PART.findall(each))]
    return frozenset(part for part in parts if len(part) >= _SHORTEST_NAME)
