"""What people did with their sessions and what they were answered, and a checker that knows nothing but that.

What was acknowledged holds, whatever happened to the controllers since. What got no answer, or one that leaves it open, may have
been done or not.
"""

from __future__ import annotations

import enum
import itertools

import msgspec

TICKS = itertools.count(1)
"""The order of things: one counter, because all that is compared happens in this process."""


class Outcome(enum.Enum):
    DONE = "done"
    REFUSED = "refused"
    OPEN = "open"


class HeldSession(msgspec.Struct, kw_only=True):
    """A session as its owner has it: with its secrets."""

    id: str
    user: str
    credential: str
    csrf: str
    """Empty: of a command line."""
    asked_at: int
    given_at: int


class Ending(msgspec.Struct, kw_only=True):
    """A request that ends one session, or all of a user."""

    what: str
    user: str
    session: str | None = None
    asked_at: int
    answered_at: int = 0
    """When the answer came, or it was known that none would: a login that is sent afterwards meets a controller that has done it, or
    one that cannot do it any more. 0: not yet."""
    outcome: Outcome = Outcome.OPEN

    def may_cover(self, held: HeldSession) -> bool:
        if self.outcome is Outcome.REFUSED or self.user != held.user:
            return False
        if self.session is not None:
            return self.session == held.id
        return not self.answered_at or held.asked_at < self.answered_at

    def surely_covers(self, held: HeldSession) -> bool:
        return self.outcome is Outcome.DONE and self.may_cover(held) and held.given_at < self.asked_at


class SessionHistory:
    """All that was asked for and answered."""

    def __init__(self) -> None:
        self.held: dict[str, HeldSession] = {}
        self.endings: list[Ending] = []
        self.open_logins: dict[str, int] = {}
        """Logins without an answer, by user: sessions of which nobody has the secret."""
        self._seen_ended: set[str] = set()

    def begin_ending(self, what: str, user: str, session: str | None = None) -> Ending:
        ending = Ending(what=what, user=user, session=session, asked_at=next(TICKS))
        self.endings.append(ending)
        return ending

    def expected(self, held: HeldSession) -> bool | None:
        """Whether it has to be accepted; None: both are right."""
        if any(ending.surely_covers(held) for ending in self.endings):
            return False
        if any(ending.may_cover(held) for ending in self.endings):
            return None
        return True

    def check_session(self, held: HeldSession, *, accepted: bool) -> None:
        expected = self.expected(held)
        ends = [ending for ending in self.endings if ending.may_cover(held)]
        assert expected is None or accepted == expected, (held.id, accepted, ends)
        if accepted:
            assert held.id not in self._seen_ended, f"{held.id} had ended, and is accepted again"
        else:
            self._seen_ended.add(held.id)

    def check_list(self, listed: dict[str, str]) -> None:
        """`listed`: the user of each session that the controller has. None is there that nobody can have begun."""
        for held in self.held.values():
            expected = self.expected(held)
            assert expected is None or (held.id in listed) == expected, (held, expected)
        unknown: dict[str, int] = {}
        for id, user in listed.items():
            if id not in self.held:
                unknown[user] = unknown.get(user, 0) + 1
        for user, count in unknown.items():
            assert count <= self.open_logins.get(user, 0), (user, count, self.open_logins)

    def summary(self) -> str:
        outcomes = [self.expected(held) for held in self.held.values()]
        open_ends = sum(ending.outcome is Outcome.OPEN for ending in self.endings)
        return (
            f"{len(outcomes)} sessions: {outcomes.count(True)} to be accepted, {outcomes.count(False)} to be refused, "
            f"{outcomes.count(None)} open; {len(self.endings)} endings, {open_ends} without an answer; "
            f"{sum(self.open_logins.values())} logins without an answer"
        )
