"""Controllers that this person has logged in to, with their tokens: one file, for the owner alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from corral.cli.failure import CommandRefused, WrongUsage
from corral.client.addresses import checked_address

FORMAT: Final = "corral-contexts"
VERSION: Final = 1
_OF_SESSIONS: Final = "corral_ses-"


class Context:
    """A controller and how to prove who we are there."""

    __slots__ = ("ca_file", "token", "url")

    def __init__(self, *, url: str, token: str, ca_file: str = "") -> None:
        self.url = url
        self.token = token
        self.ca_file = ca_file

    @property
    def is_session(self) -> bool:
        """Whether the token is that of a login, which ends with it; the form is the controller's."""
        return self.token.startswith(_OF_SESSIONS)

    def as_json(self) -> dict[str, str]:
        return {"url": self.url, "token": self.token, "ca_file": self.ca_file}


class Contexts:
    """The file's content. `save` replaces the file as a whole, mode 0600."""

    def __init__(self, *, path: str, current: str, known: dict[str, Context]) -> None:
        self.path = path
        self.current = current
        self.known = known

    def find(self, name: str) -> Context:
        """Refuses an unknown name, with the nearest known one."""
        if name in self.known:
            return self.known[name]
        from corral.errors import nearest

        guess = nearest(name, self.known)
        known = ", ".join(sorted(self.known)) or "none yet; make one with 'corral login URL'"
        meant = f"did you mean '{guess}'? " if guess else ""
        raise WrongUsage(f"there is no context '{name}'", hint=f"{meant}known: {known}")

    def logins_at(self, url: str) -> dict[str, Context]:
        """The contexts with a token whose address means the same as this one."""
        place = _place(url)
        return {
            name: context
            for name, context in self.known.items()
            if context.token and place is not None and _place(context.url) == place
        }

    def save(self) -> None:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "current": self.current,
            "contexts": {name: context.as_json() for name, context in sorted(self.known.items())},
        }
        directory = os.path.dirname(self.path)  # noqa: PTH120 - pathlib would be one more import
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
            temporary = f"{self.path}.{os.getpid()}.tmp"
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                json.dump(document, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)  # noqa: PTH105
        except OSError as error:
            raise CommandRefused(f"cannot write {self.path}: {error.strerror}") from error


def _place(url: str) -> tuple[object, ...] | None:
    """Scheme, host, port and prefix of an address; None: it is none."""
    try:
        return checked_address(url)[1:]
    except ValueError:
        return None


def renew_token(path: str, former: str, present: str) -> bool:
    """Remember another token wherever the former one is; False: it is nowhere."""
    known = load(path)
    found = [context for context in known.known.values() if context.token == former]
    for context in found:
        context.token = present
    if found:
        known.save()
    return bool(found)


def default_path(environment: Mapping[str, str]) -> str:
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(  # noqa: PTH118
        environment.get("HOME") or "/", ".config"
    )
    return os.path.join(home, "corral", "contexts.json")  # noqa: PTH118


def load(path: str) -> Contexts:
    """The contexts in a file; none when it is missing. Refuses what is damaged or newer."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            document = json.load(file)
    except FileNotFoundError:
        return Contexts(path=path, current="", known={})
    except OSError as error:
        raise CommandRefused(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        raise _damaged(path) from None
    return _checked(path, document)


def _checked(path: str, document: Any) -> Contexts:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _damaged(path)
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise CommandRefused(
            f"{path} has format version {version}, this Corral reads up to {VERSION}",
            hint="run the version of Corral that wrote it, or a newer one",
            code="FORMAT_TOO_NEW",
        )
    try:
        known = {
            str(name): Context(
                url=str(entry["url"]), token=str(entry["token"]), ca_file=str(entry.get("ca_file") or "")
            )
            for name, entry in document["contexts"].items()
        }
    except (KeyError, TypeError, AttributeError):
        raise _damaged(path) from None
    return Contexts(path=path, current=str(document.get("current") or ""), known=known)


def _damaged(path: str) -> CommandRefused:
    return CommandRefused(
        f"{path} is not a '{FORMAT}' file",
        hint="move it away and log in again with 'corral login URL'",
        code="FORMAT_INVALID",
    )
