"""The errors of the whole product.

Every failure that a person or a peer may see is a `CorralError`: a wire-stable code, a message with what
happened and why, and a hint for what to do next. The class says who has to act: the caller (`Rejected`)
or the authors (`Bug`); a `Retryable` failure may pass by itself.
"""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import enum
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple


class Code(enum.Enum):
    """Wire-stable codes: the name is sent, the number is its HTTP status."""

    status: int

    def __new__(cls, status: int) -> Code:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)  # several names share a status: no aliases
        member.status = status
        return member

    # the request
    BAD_REQUEST = 400
    INVALID_JSON = 400
    LOCAL_COMMAND = 400
    INVALID_FIELD = 400
    UNKNOWN_FIELD = 400
    MISSING_FIELD = 400
    INVALID_CURSOR = 400
    INVALID_CONFIG = 400
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    ORIGIN_REFUSED = 403
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    NOT_ACCEPTABLE = 406
    CONFLICT = 409
    ALREADY_EXISTS = 409
    ILLEGAL_TRANSITION = 409
    IDEMPOTENCY_KEY_REUSED = 409
    ANSWER_NOT_KEPT = 409
    NODE_ID_IN_USE = 409
    NODE_OFFLINE = 409
    NODE_DRAINING = 409
    RESYNC_REQUIRED = 410
    REVISION_MISMATCH = 412
    FILE_CHANGED = 412
    BODY_TOO_LARGE = 413
    UNSUPPORTED_MEDIA_TYPE = 415
    MISDIRECTED_REQUEST = 421
    DIGEST_MISMATCH = 422
    ARTIFACT_DIGEST_MISMATCH = 422
    SIGNATURE_VERIFICATION_FAILED = 422
    RATE_LIMITED = 429
    LOGIN_DELAYED = 429

    # enrolment and link
    JOIN_TOKEN_INVALID = 401
    JOIN_TOKEN_EXPIRED = 401
    JOIN_TOKEN_USED = 401
    CERTIFICATE_REFUSED = 403
    PROTOCOL_INCOMPATIBLE = 400
    HANDSHAKE_EXPECTED = 400
    STALE_EPOCH = 409
    PEER_TOO_SLOW = 503
    UNKNOWN_EVENT_TYPE = 400
    CACHE_DOWNLOAD_FAILED = 502
    PORT_IN_USE = 409
    TRANSFER_INTERRUPTED = 503

    # logins
    LOGIN_FAILED = 401
    LOGIN_PENDING = 403
    SECOND_FACTOR_REQUIRED = 401
    PASSWORD_CHANGE_REQUIRED = 403
    USER_LOCKED = 403
    INSECURE_LOGIN = 403
    OIDC_FAILED = 401
    OIDC_NO_ROLE = 403
    OIDC_UNAVAILABLE = 503

    # instances
    COMMAND_NOT_FOUND = 422
    NOT_EXECUTABLE = 422
    BAD_FORMAT = 422
    ARGUMENTS_TOO_LONG = 422
    RUN_AS_REFUSED = 422
    DIRECTORY_REFUSED = 422
    SPAWN_FAILED = 503
    START_FAILED = 422
    START_INTERRUPTED = 409
    STARTUP_TIMEOUT = 504
    NO_CAPACITY = 409
    PORT_RANGE_EXHAUSTED = 409
    GROUP_FULL = 409
    GROUP_NOT_EMPTY = 409
    CONFIRMATION_REQUIRED = 409
    DOCUMENTS_INVALID = 400
    LIVE_EDIT = 409
    GROUP_PAUSED = 409
    GROUP_HELD = 409
    NOT_RUNNING = 409
    STALE_INCARNATION = 409
    INPUT_NOT_READ = 409
    INPUT_CLOSED = 409
    MAY_HAVE_ARRIVED = 409
    NOT_SUPPORTED = 409
    CONSOLE_GONE = 410
    INVALID_PATTERN = 400
    DISK_FULL = 507
    RUNTIME_UNAVAILABLE = 422

    # files of instances
    TEMPLATE_NOT_FOUND = 404
    TEMPLATE_IN_USE = 409
    TEMPLATE_CYCLE = 422
    TEMPLATE_UNAVAILABLE = 503
    ARCHIVE_INVALID = 422
    ARCHIVE_TOO_LARGE = 413
    PATH_REFUSED = 422
    FILE_UNREADABLE = 422
    PLAN_MISMATCH = 422
    VARIABLE_INVALID = 422
    VARIABLE_UNRESOLVED = 422
    SECRET_UNAVAILABLE = 422
    SECRET_EXPOSED = 422
    CONFIG_FILE_INVALID = 422
    CONFIG_PATCH_FAILED = 422
    ARTIFACT_NOT_FOUND = 404
    ARTIFACT_IN_USE = 409
    ARTIFACT_REFUSED = 422
    EXTENSION_CONFLICT = 422
    EXTENSION_NOT_FOUND = 404
    JAVA_NOT_FOUND = 422
    CACHE_FULL = 507
    WORKLOAD_TOKEN_INVALID = 401

    # modules
    MANIFEST_INVALID = 422
    MODULE_INCOMPATIBLE = 422
    MODULE_VERSION_CONFLICT = 409
    MODULE_UPGRADE_FAILED = 422
    MODULE_NOT_ACTIVE = 503
    MODULE_FAILED = 502
    MODULE_TIMEOUT = 504
    MODULE_BUSY = 503
    CAPABILITY_CONFLICT = 409
    CAPABILITY_CYCLE = 422
    CAPABILITY_UNAVAILABLE = 503
    CAPABILITY_TYPE = 422
    SETTINGS_INVALID = 422
    QUERY_INVALID = 400
    STORAGE_QUOTA = 507
    STORAGE_IN_USE = 409
    STORAGE_UNAVAILABLE = 503

    # files of ours
    FORMAT_TOO_NEW = 500
    FORMAT_INVALID = 500
    DATA_DIRECTORY_LOCKED = 409

    # the control plane itself
    INTERNAL = 500
    STORE_UNAVAILABLE = 503
    NOT_LEADER = 503
    FENCED = 503
    SHUTTING_DOWN = 503
    UNREACHABLE = 503
    TIMEOUT = 504


def encodable(text: str) -> str:
    """The text with lone surrogates, which no encoder takes, as `\\udcff`: names of files may bring them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


class CorralError(Exception):
    """What happened, why, and what to do next. Its texts can be stored and sent, whatever they were made of."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        hint: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        message = encodable(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = None if hint is None else encodable(hint)
        self.field = None if field is None else encodable(field)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class Rejected(CorralError):
    """The caller has to change something; the same call fails again."""


class FileChanged(Rejected):
    """A file is not what the caller has seen; nothing was changed. `digest` is that of the present one; empty: there is
    none, or it was not read."""

    def __init__(self, message: str, *, digest: str = "", hint: str | None = None) -> None:
        super().__init__(Code.FILE_CHANGED, message, hint=hint)
        self.digest = digest


class DocumentFault(NamedTuple):
    """A refused document among several."""

    path: str
    """Where its author has it, such as the name of a file; empty: it is not among the documents that were sent."""
    group: str
    """The name in it; empty: it has none."""
    error: Rejected


class DocumentsRejected(Rejected):
    """Several documents are refused together, each for its own reasons."""

    def __init__(self, code: Code, message: str, faults: Iterable[DocumentFault], *, hint: str) -> None:
        super().__init__(code, message, hint=hint)
        self.faults = tuple(faults)


class Retryable(CorralError):
    """The same call may succeed later; nothing was changed unless the message says otherwise."""


class Bug(CorralError):
    """An invariant of Corral is broken; the message has what is needed to find out."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INTERNAL, message, hint="this is a bug in Corral; please report it")


class IllegalTransition(Rejected):
    """A lifecycle table has no such step from here."""

    def __init__(
        self, subject: str, phase: str, trigger: str, story: Iterable[str] = (), *, hint: str | None = None
    ) -> None:
        told = "; ".join(story)
        super().__init__(
            Code.ILLEGAL_TRANSITION,
            f"{subject} is {phase} and cannot take '{trigger}'" + (f" (history: {told})" if told else ""),
            hint=hint,
        )
        self.phase = phase
        self.trigger = trigger


_LONGEST_TYPO: Final = 200
_FEW: Final = 20


class Guesses:
    """How many typos are still looked up, for an answer with many errors: each is compared with all that is known."""

    def __init__(self, left: int = _FEW) -> None:
        self.left = left


_GUESSES: Final[contextvars.ContextVar[Guesses | None]] = contextvars.ContextVar(
    "corral_guesses", default=None
)


@contextlib.contextmanager
def limited_guesses(guesses: Guesses) -> Iterator[None]:
    """Here and in what is called from here, `nearest` finds nothing once these are used up."""
    token = _GUESSES.set(guesses)
    try:
        yield
    finally:
        _GUESSES.reset(token)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that a typo most likely meant, for "did you mean" hints. A long word is not matched."""
    if len(word) > _LONGEST_TYPO:
        return None
    guesses = _GUESSES.get()
    if guesses is not None:
        if not guesses.left:
            return None
        guesses.left -= 1
    found = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_choice(
    kind: str, word: str, choices: Iterable[str], *, code: Code, field: str | None = None
) -> Rejected:
    """A refusal that lists the accepted values."""
    known = sorted(choices)
    if not known:
        return Rejected(code, f"unknown {kind} '{word}'", hint=f"there is no {kind} at present", field=field)
    guess = nearest(word, known)
    hint = f"did you mean '{guess}'? known: " if guess else "known: "
    return Rejected(code, f"unknown {kind} '{word}'", hint=hint + ", ".join(known), field=field)


def counted(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`; `many` where no s makes the plural: `1 is`, `2 are`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def short_list(items: Iterable[object], most: int) -> str:
    """`a, b and 3 more`."""
    words = [str(item) for item in items]
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")
