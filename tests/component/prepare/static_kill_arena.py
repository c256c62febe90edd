"""Static starts that are killed at drawn moments, one after another, of a world that is edited between them. Run as a program: it forks before
there are threads, so that a round costs milliseconds and not the start of an interpreter."""

from __future__ import annotations

import asyncio
import itertools
import os
import pathlib
import random
import select
import signal
import sys
import time

from prepare_bench import Bench, plan_of, tree_of

WORLD = b"years of work\n"
FILES = 60
INTERRUPTED = 30
"""Rounds at least, and one of them between two renames: rounds are added until there are."""


def start(data: pathlib.Path, number: int) -> None:
    """One start of the instance, with the templates of this round."""

    async def main() -> None:
        bench = Bench(data)
        files = {f"d{n % 5}/f{n}": b"%d %d " % (number, n) * 50 for n in range(FILES)}
        files["keep/me"] = b"%d" % number
        template = bench.cache.template("t", files)
        plan = plan_of(templates=(template,), static=True, protected_paths=("keep/",), substitute=("d0/**",))
        os.write(1, b"go")
        await bench.make(plan, incarnation=1024 * number, PORT=str(number))

    asyncio.run(main())


def round(data: pathlib.Path, number: int, kill_after: float | None) -> tuple[bool, float]:
    """Whether it came to its end, and how long it took."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        try:
            start(data, number)
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        assert pipe.read(2) == b"go"
        began = time.monotonic()
        if kill_after is not None:
            select.select([], [], [], kill_after)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    return status == 0, time.monotonic() - began


def main(data: pathlib.Path, rounds: int) -> None:
    draw = random.Random(14)
    place = data / "static" / "one"
    assert round(data, 1, None)[0]
    (place / "world").write_bytes(WORLD)
    (place / "keep/me").write_bytes(b"mine")
    complete = [round(data, number, None) for number in (2, 3, 4)]
    assert all(done for done, _ in complete)
    span = min(took for _, took in complete)  # the machine may have been busy with something else
    interrupted = mixed = 0
    edited: dict[str, bytes] = {}
    removed: set[str] = set()
    for number in itertools.count(5):
        more = number - 4 > rounds
        if more and ((interrupted >= INTERRUPTED and mixed) or number > 10 * rounds):
            break
        # A machine that has become slower since reaches the renames later.
        came_to_its_end = round(data, number, draw.random() * span * (4 if more else 1))[0]
        interrupted += not came_to_its_end
        found = tree_of(place)
        assert found["world"] == WORLD
        assert found["keep/me"] == b"mine"
        assert {path: found.pop(path) for path in edited} == edited, "an edit was overwritten"
        assert removed.isdisjoint(found), "what was removed is back"
        rounds_seen = set()
        for path, body in found.items():
            if path.startswith("d"):
                wanted = int(body.split()[0])
                assert 1 <= wanted <= number
                assert body == b"%d %d " % (wanted, int(path.rpartition("f")[2])) * 50, f"half of {path}"
                rounds_seen.add(wanted)
        mixed += len(rounds_seen) > 1
        if not came_to_its_end and number % 3 == 0:
            # The same start again: what was left undone is done, although no template has changed since.
            assert round(data, number, None)[0]
            again = tree_of(place)
            assert all(
                body.startswith(b"%d " % number)
                for path, body in again.items()
                if path[0] == "d" and path not in edited
            ), "what a killed start had laid was taken for an edit"
        if number % 10 == 0 and not more:
            # Whoever looks after the world edits one file and removes another, whatever the last start has left.
            of_templates = sorted(path for path in tree_of(place) if path[0] == "d" and path not in edited)
            one, other = draw.sample(of_templates, 2)
            edited[one] = b"edited after round %d" % number
            (place / one).write_bytes(edited[one])
            (place / other).unlink()
            removed.add(other)
    assert round(data, 9999, None)[0]
    found = tree_of(place)
    assert set(found) == {*(f"d{n % 5}/f{n}" for n in range(FILES)), "keep/me", "world"} - removed
    assert {path: found.pop(path) for path in edited} == edited
    assert all(body.startswith(b"9999 ") for path, body in found.items() if path.startswith("d"))
    assert not list((data / "static" / ".staging").iterdir())
    sys.stderr.write(f"{interrupted} {mixed}\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
