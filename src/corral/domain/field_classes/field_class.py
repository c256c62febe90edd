"""Classes of fields: who sees a value, and which part of it is hidden from the others."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class FieldClass(enum.StrEnum):
    """Open: whoever may read the resource. Sensitive: callers with `instances.sensitive`; from the others all of it is
    hidden, or the parts that the kind names. Secret: nobody, but for the one answer that hands it out."""

    OPEN = "open"
    SENSITIVE = "sensitive"
    """Every text and number in it is hidden; names (of variables) and the number of items stay."""
    URL = "url"
    """Sensitive are user, password, query and fragment of an address; where it leads stays."""
    TEXT = "text"
    """The same of every address in free text: programs, modules and nodes contribute to sentences."""
    LOG_FIELDS = "log_fields"
    """Fields of a log record, each by the class of its name."""
    DOCUMENT = "document"
    """A document in an event's data, each field by the class that it has in the API."""
    SECRET = "secret"  # noqa: S105 - the name of a class
    SHOWN_ONCE = "shown_once"
    """A secret in the answer to the request that made it, and nowhere else."""

    @property
    def level(self) -> str:
        """Which of the three classes it is."""
        return _LEVELS.get(self, "sensitive")


_LEVELS: Mapping[FieldClass, str] = {
    FieldClass.OPEN: "open",
    FieldClass.SECRET: "secret",
    FieldClass.SHOWN_ONCE: "secret",
}


def fields(
    *,
    open: str = "",
    text: str = "",
    url: str = "",
    sensitive: str = "",
    log_fields: str = "",
    document: str = "",
    secret: str = "",
    shown_once: str = "",
) -> Mapping[str, FieldClass]:
    """Classes by the name of the field; each argument lists names, separated by blanks."""
    listed = {
        FieldClass.OPEN: open,
        FieldClass.TEXT: text,
        FieldClass.URL: url,
        FieldClass.SENSITIVE: sensitive,
        FieldClass.LOG_FIELDS: log_fields,
        FieldClass.DOCUMENT: document,
        FieldClass.SECRET: secret,
        FieldClass.SHOWN_ONCE: shown_once,
    }
    classes: dict[str, FieldClass] = {}
    for kind, names in listed.items():
        for name in names.split():
            if name in classes:
                raise ValueError(f"field '{name}' has two classes")
            classes[name] = kind
    return classes
