"""Questions about module documents that every contestant is asked, and what others feel meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
import types
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from benchmarks.figures import percentile
from benchmarks.sizes import sized
from corral.controller.state.ledger import Ledger
from corral.domain.modules.manifest import Manifest, StorageLimits, StoragePart
from corral.modules.services.host_operations import Operation
from corral.sdk.filters import F
from corral.sdk.storage import Collection, DocumentStorage, Index
from corral.store.port import ABSENT, Put

DOCUMENTS: Final = int(os.environ.get("CORRAL_BENCH_DOCUMENTS", sized(100_000, 500)))
GAMES: Final = 8
INDEXES: Final = [Index("game", "score"), Index("name", unique=True)]
ONE_MORE: Final = Index("stats.wins")
_COLLECTIONS: Final = 25


class Player(msgspec.Struct):
    name: str
    game: str
    score: int
    stats: dict[str, float]
    tags: list[str]
    note: str


def players_of(count: int) -> list[Player]:
    dice = random.Random(21)
    scores = dice.sample(range(10 * count), count)
    return [
        Player(
            name=f"player-{number:07}",
            game=f"game-{number % GAMES}",
            score=scores[number],
            stats={"wins": dice.randrange(1000), "losses": dice.randrange(1000), "ratio": dice.random()},
            tags=[f"tag-{dice.randrange(50)}" for _ in range(3)],
            note="".join(dice.choices("abcdefgh ", k=160)),
        )
        for number in range(count)
    ]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of work took, in milliseconds: at the median, of this process's processor, and what others
    felt meanwhile: the loop's lag (p99) and the longest wait for a commit."""

    median: float
    processor: float
    lag: float
    neighbour: float


class Link:
    """Calls of the SDK, as bytes, to a table of operations."""

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = {operation.method: operation for operation in operations}
        storage = StoragePart(documents=True, limits=StorageLimits(documents_mb=1024))
        manifest = Manifest(manifest_version=1, id="arena", version="1.0.0", storage=storage)
        self._scope: Any = types.SimpleNamespace(module_id="arena", generation=1, manifest=manifest)

    async def call(self, method: str, body: Any, answer: Any, *, deadline: float = 30.0) -> Any:  # noqa: ARG002 - as a link has it
        operation = self._operations[method]
        asked = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=operation.body)
        given = await operation.handler(self._scope, asked)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=answer)

    def notify(self, method: str, body: Any) -> None:  # noqa: ARG002 - as a link has it
        raise AssertionError("storages do not notify")


class Watch:
    """How late the loop is, and how long somebody else's commit takes, while something is under way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.lags: list[float] = []
        self.neighbour = 0.0

    async def __aenter__(self) -> Watch:
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._commit())]
        await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks[0].cancel()
        self._ended = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    _ended = False

    async def _tick(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            self.lags.append((time.perf_counter() - begun - 0.001) * 1000)

    async def _commit(self) -> None:
        while not self._ended:
            begun = time.perf_counter()
            await self._ledger.commit(Put(collection="probe", id="probe", body=b"{}", expect=None))
            self.neighbour = max(self.neighbour, time.perf_counter() - begun)
            await asyncio.sleep(0.02)


class Contest:
    """The same questions for every contestant."""

    def __init__(self, storage: DocumentStorage, ledger: Ledger) -> None:
        self._storage = storage
        self._ledger = ledger
        self._dice = random.Random(4)
        self.work: dict[str, Work] = {}
        self.answers: dict[str, Any] = {}

    async def measure(self, name: str, times: int, step: Callable[[int], Awaitable[Any]]) -> None:
        taken: list[float] = []
        async with Watch(self._ledger) as watch:
            busy = time.process_time()
            for number in range(times):
                begun = time.perf_counter()
                answer = await step(number)
                taken.append((time.perf_counter() - begun) * 1000)
                self.answers[name] = answer
            busy = time.process_time() - busy
        self.work[name] = Work(
            median=statistics.median(taken),
            processor=busy * 1000 / times,
            lag=percentile(watch.lags, 0.99),
            neighbour=watch.neighbour * 1000,
        )

    async def run(self) -> None:
        players = await self._fill()
        await self._indexed(players)
        await self._read_through(players)
        await self._written(players)
        await self._beside()

    async def _fill(self) -> Collection[Player]:
        players = await self._storage.create("players", Player, indexes=INDEXES)
        values = players_of(DOCUMENTS)
        part = max(1, DOCUMENTS // 20)

        async def insert(number: int) -> int:
            return len(await players.insert_many(values[number * part : (number + 1) * part]))

        async def build(_: int) -> int:
            await self._storage.create("players", Player, indexes=[*INDEXES, ONE_MORE])
            return await players.count(F.stats.wins == 7)

        await self.measure("insert a twentieth", 20, insert)
        await self.measure("build an index", 1, build)
        return players

    async def _indexed(self, players: Collection[Player]) -> None:
        some = [each.id for each in await players.find(F.game == "game-1", limit=500)]
        names = [f"player-{self._dice.randrange(DOCUMENTS):07}" for _ in range(200)]
        width = 10 * DOCUMENTS // 100

        async def point(number: int) -> bool:
            return await players.get(some[number % len(some)]) is not None

        async def equal(number: int) -> str:
            return (await players.find(F.name == names[number]))[0].value.name

        async def best(number: int) -> list[int]:
            found = await players.find(F.game == f"game-{number % GAMES}", sort=["-score"], limit=10)
            return [each.value.score for each in found]

        async def within(number: int) -> int:
            low = number * width
            fits = (F.game == "game-3") & (F.score >= low) & (F.score < low + width)
            return len(await players.find(fits, sort=["score"], limit=1000))

        async def counted(number: int) -> int:
            return await players.count((F.stats.wins >= 10 * number) & (F.stats.wins < 10 * number + 10))

        async def paged(_: int) -> int:
            return sum([1 async for _ in players.find(F.game == "game-2", sort=["score"])])

        await self.measure("read one", 200, point)
        await self.measure("find one by a unique field", 200, equal)
        await self.measure("the best ten of a game", 100, best)
        await self.measure("a range, 1/800 of all", 50, within)
        await self.measure("count by an index, 1/100 of all", 20, counted)
        await self.measure("page through 1/8 of all, sorted", 1, paged)

    async def _read_through(self, players: Collection[Player]) -> None:
        async def counted(number: int) -> int:
            return await players.count(F.stats.losses < 10 + number)

        async def sorted_(_: int) -> list[float]:
            return [each.value.stats["ratio"] for each in await players.find(sort=["-stats.ratio"], limit=10)]

        async def contained(number: int) -> int:
            return await players.count(F.tags.contains(f"tag-{number}"))

        async def matched(_: int) -> int:
            return await players.count(F.note.matches("^abc.*h$"))

        async def at_once(_: int) -> list[int]:
            return await asyncio.gather(*(counted(number) for number in range(4)))

        await self.measure("count without an index", 3, counted)
        await self.measure("the best ten without an index", 3, sorted_)
        await self.measure("count by an element", 3, contained)
        await self.measure("count by a pattern", 3, matched)
        await self.measure("four counts at once", 1, at_once)

    async def _written(self, players: Collection[Player]) -> None:
        trades = self._storage.collection("trades", dict)
        some = [each.id for each in await players.find(F.game == "game-4", limit=1000)]

        async def update(number: int) -> None:
            await players.update(
                some[number % len(some)], inc={"score": 1}, set={"note": f"changed {number}"}
            )

        async def transaction(number: int) -> None:
            async with self._storage.transaction() as tx:
                for place in range(5):
                    chosen = some[(200 + 5 * number + place) % len(some)]
                    tx.update(players, chosen, inc={"score": 1})
                    tx.insert(trades, {"number": number, "place": place})

        async def update_many(number: int) -> int:
            return await players.update_many(F.stats.wins == 100 + number, inc={"score": 1})

        async def delete_many(number: int) -> int:
            return await players.delete_many(F.stats.wins == 200 + number)

        await self.measure("update one", 100, update)
        await self.measure("a transaction of ten steps", 50, transaction)
        await self.measure("update 1/1000 of all", 5, update_many)
        await self.measure("delete 1/1000 of all", 5, delete_many)

    async def _beside(self) -> None:
        """What modules' indexes cost those who have none."""
        for number in range(_COLLECTIONS):
            indexes = [Index(f"field_{letter}") for letter in "abcdefgh"]
            await self._storage.create(f"more_{number}", dict, indexes=indexes)

        async def commit(number: int) -> None:
            await self._ledger.commit(Put(collection="things", id=f"{number}", body=b"{}", expect=ABSENT))

        await self.measure(f"a commit beside {8 * _COLLECTIONS} indexes", 100, commit)
