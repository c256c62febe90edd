"""Those who follow commits: one that fails ends nothing, and reads anew what it missed."""

from __future__ import annotations

import asyncio

import pytest
from event_cases import commit, event, hub
from structlog.testing import capture_logs

from corral.controller.events.ring import EventSelection
from corral.controller.term.commit_followers import Followers
from corral.store.port import Commit
from corral.testing.waiting import eventually


class Counted:
    """Knows how many commits it took, and fails on request."""

    def __init__(self, *, refuses: frozenset[int] = frozenset(), refuses_to_resync: int = 0) -> None:
        self.taken: list[int] = []
        self.resyncs = 0
        self._refuses = refuses
        self._refuses_to_resync = refuses_to_resync

    def follow(self, commit: Commit) -> None:
        sequence = commit.events[0].cursor.sequence
        if sequence in self._refuses:
            raise ZeroDivisionError(f"commit {sequence}")
        self.taken.append(sequence)

    def resync(self) -> None:
        if self._refuses_to_resync:
            self._refuses_to_resync -= 1
            raise ZeroDivisionError("not yet")
        self.resyncs += 1


async def test_a_follower_that_fails_is_said_once_and_holds_up_no_other() -> None:
    followers = Followers()
    first, broken, last = Counted(), Counted(refuses=frozenset({1, 2})), Counted()
    for name, each in {"first": first, "broken": broken, "last": last}.items():
        followers.add(name, each)
    with capture_logs() as logs:
        for sequence in range(1, 5):
            followers.follow(commit(event(sequence)))
        assert followers.stale == ["broken"]
        task = asyncio.create_task(followers.run())
        await eventually(lambda: broken.resyncs == 1)
        await eventually(lambda: followers.stale == [])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert first.taken == last.taken == [1, 2, 3, 4]
    assert broken.taken == [3, 4]
    assert (first.resyncs, last.resyncs) == (0, 0)
    said = [(log["event"], log["follower"], log.get("commits")) for log in logs]
    assert said == [("follower.failed", "broken", None), ("follower_resync.finished", "broken", 2)]


async def test_one_that_cannot_read_anew_is_tried_again_and_the_others_are_mended() -> None:
    followers = Followers()
    stubborn = Counted(refuses=frozenset({1}), refuses_to_resync=2)
    other = Counted(refuses=frozenset({1}))
    followers.add("a stubborn one", stubborn)
    followers.add("other", other)
    task = asyncio.create_task(followers.run())
    followers.follow(commit(event(1)))
    await eventually(lambda: (stubborn.resyncs, other.resyncs) == (1, 1))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_that_waits_long_keeps_no_other_waiting() -> None:
    followers = Followers()
    broken = {name: Counted(refuses=frozenset({1}), refuses_to_resync=1000) for name in ("a", "b", "c")}
    quick = Counted(refuses=frozenset({1, 2}))
    for name, each in {**broken, "z quick": quick}.items():
        followers.add(name, each)
    followers.follow(commit(event(1)))
    task = asyncio.create_task(followers.run())
    await eventually(lambda: quick.resyncs == 1)

    def waiting() -> set[str]:
        return {
            each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith("followers/mend/")
        }

    await eventually(lambda: waiting() == {f"followers/mend/{name}" for name in broken})
    followers.follow(commit(event(2)))
    await eventually(lambda: "followers/mend/z quick" in waiting())  # at once, beside those that wait
    await eventually(lambda: quick.resyncs == 2)
    assert followers.stale == ["a", "b", "c"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert waiting() == set()


async def test_whoever_joins_before_another_hears_before_it() -> None:
    followers = Followers()
    heard: list[str] = []

    class Named(Counted):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def follow(self, commit: Commit) -> None:
            heard.append(self._name)

    followers.add("fleet", Named("fleet"))
    followers.add("events", Named("events"))
    followers.add("modules", Named("modules"), before="events")
    followers.follow(commit(event(1)))
    assert heard == ["fleet", "modules", "events"]


async def test_a_hub_that_missed_a_commit_begins_anew_behind_it_and_wakes_everybody() -> None:
    events = hub()
    events.publish(commit(event(1)))

    def refuses() -> None:
        raise ZeroDivisionError

    events.wakeup.chain(refuses)
    with pytest.raises(ZeroDivisionError):
        events.publish(commit(event(2)))
    events.wakeup.unchain(refuses)
    turn = events.wakeup.turn
    events.resync()
    assert events.wakeup.turn > turn
    assert events.head == event(2).cursor
    events.publish(commit(event(3)))
    found, cursor = events.ring.events(2, EventSelection(), limit=10)
    assert ([each.cursor.sequence for each in found], cursor) == ([3], event(3).cursor)
