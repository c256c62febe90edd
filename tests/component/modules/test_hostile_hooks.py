"""Modules that throw or hang in every place that the host calls: each ends alone, with the right reason."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Final, NamedTuple

import pytest
from hostile_rig import Pen, code_of, pen
from hostile_zoo import PLACES, beast_archive, harmless_archive

from corral.testing.cluster import LocalCluster

pytestmark = pytest.mark.system

HANG_MS: Final = 2500
"""Long enough for all that is harmless: a module is nicer than whatever else keeps the machine busy."""
REGISTERING: Final = ("register_routes", "capability_handles", "register_commands")
STARTING: Final = ("import", "constructor", "on_load", "on_start", *REGISTERING)
HOOKS: Final = tuple(place for place in PLACES if place.startswith("on_"))
CORNERS: Final = ("on_load", "on_stop", "on_unload")


class Evil(NamedTuple):
    """What is done, and whether on the module's loop: in `async def`, where the place may be one."""

    code: str
    on_loop: bool = False
    places: tuple[str, ...] = PLACES


THROWS: Final = {
    "an exception": Evil("raise ValueError('no')"),
    "an exception in a coroutine": Evil("raise ValueError('no')", on_loop=True),
    "SystemExit": Evil("raise SystemExit(3)"),
    "KeyboardInterrupt in a coroutine": Evil("raise KeyboardInterrupt", on_loop=True),
    "a BaseException without a text": Evil(
        "class Bad(BaseException):\n    def __str__(self): raise SystemExit\nraise Bad"
    ),
    "a cancellation": Evil("raise asyncio.CancelledError", on_loop=True),
    "endless recursion": Evil("def again(): again()\nagain()"),
}
ASLEEP: Final = (
    Evil("time.sleep(3600)"),
    Evil("await asyncio.sleep(3600)", on_loop=True, places=HOOKS),
    Evil("time.sleep(3600)", on_loop=True, places=CORNERS),
    Evil(
        "while True:\n    try: await asyncio.sleep(3600)\n    except BaseException: pass",
        on_loop=True,
        places=CORNERS,
    ),
)
BUSY: Final = (
    Evil("while True: pass", places=CORNERS),
    Evil("while True: pass", on_loop=True, places=CORNERS),
    Evil("re.match('(a+)+$', 'a' * 60 + 'b')", places=("import", *CORNERS)),
)


class Herd:
    """Evils, each in each of its places in a module of its own, all at once."""

    def __init__(self, pen: Pen, *evils: Evil, hook_ms: int) -> None:
        self.pen = pen
        self.archives: dict[tuple[int, str], pathlib.Path] = {}
        for number, evil in enumerate(evils):
            for place in evil.places:
                self.archives[number, place] = beast_archive(
                    pen.scratch,
                    place,
                    evil.code,
                    id=id_of((number, place)),
                    hook_ms=hook_ms,
                    on_loop=evil.on_loop and place.startswith("on_"),
                )

    def at(self, *places: str) -> list[tuple[int, str]]:
        return [beast for beast in self.archives if beast[1] in places]

    async def let_in(self) -> dict[tuple[int, str], tuple[str, str]]:
        """Installed and then activated; where each stands."""
        for beast, path in self.archives.items():
            if beast[1] == "on_upgrade":
                path = harmless_archive(self.pen.scratch, id_of(beast), version="0.9.0", hook_ms=10_000)
            await self.pen.install(path, activate=False)
        return await self.each("activate", list(self.archives))

    async def each(self, verb: str, beasts: list[tuple[int, str]]) -> dict[tuple[int, str], tuple[str, str]]:
        done = await asyncio.gather(*(self.pen.act(id_of(beast), verb) for beast in beasts))
        return dict(zip(beasts, done, strict=True))

    async def upgrade(self) -> None:
        """The old version serves again."""
        for beast in self.at("on_upgrade"):
            assert code_of(await self.pen.send(self.archives[beast])) == "MODULE_UPGRADE_FAILED"
            old = await self.pen.info(id_of(beast))
            assert (old["version"], old["phase"]) == ("0.9.0", "ACTIVE")


def id_of(beast: tuple[int, str]) -> str:
    return f"{beast[1].replace('_', '-')}-{beast[0]}"


def failing(place: str, word: str) -> tuple[str, str]:
    """Where a module ends that `failed` or had an `overrun` there."""
    if place in ("import", "constructor"):
        failed = "import_failed" if place == "import" else "construct_failed"
        return "FAILED", failed if word == "failed" else "hook_overrun:construct"
    return "FAILED", f"hook_{word}:{'registrations' if place in REGISTERING else place}"


async def check_herd(herd: Herd, word: str) -> None:
    """Through every phase, until nothing is left."""
    pen, early, stopping, reloading = herd.pen, herd.at(*STARTING), herd.at("on_stop"), herd.at("on_reload")
    fallen = {beast: failing(beast[1], word) for beast in early}
    assert await herd.let_in() == {beast: fallen.get(beast, ("ACTIVE", "")) for beast in herd.archives}
    for beast in early:
        assert await pen.held(id_of(beast)) == []

    again, stopped, reloaded, _ = await asyncio.gather(
        herd.each("recover", early),
        herd.each("deactivate", stopping),
        herd.each("reload", reloading),
        herd.upgrade(),
    )
    assert again == fallen
    assert stopped == {beast: failing("on_stop", word) for beast in stopping}
    told = "MODULE_FAILED" if word == "failed" else "MODULE_TIMEOUT"
    assert reloaded == dict.fromkeys(reloading, ("", told))
    for beast in reloading:
        await pen.stands(id_of(beast), *(("ACTIVE", "") if word == "failed" else failing("on_reload", word)))
    for beast in stopping:
        assert await pen.held(id_of(beast)) == []
        assert await pen.act(id_of(beast), "recover") == ("INSTALLED", "recovered")
    await pen.uninstall(*map(id_of, herd.archives))


async def test_what_a_harmless_module_holds_is_seen_and_gone_when_it_is_stopped(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """Else the other tests here would look at nothing."""
    async with pen(cluster, scratch) as made:
        assert (await made.install(harmless_archive(made.scratch, "lamb")))["phase"] == "ACTIVE"
        held = await made.held("lamb", patience=0)
        assert [each.split()[0] for each in held] == [
            "live", "process", "capabilities", "commands", "route", "modules/deliver/lamb/1", "modules/task/lamb/beat",
        ]  # fmt: skip
        assert await made.act("lamb", "deactivate") == ("INSTALLED", "deactivated")
        assert await made.held("lamb", patience=0) == []
        await made.uninstall("lamb")


@pytest.mark.parametrize("throws", THROWS)
async def test_whatever_is_raised_wherever_ends_in_the_right_phase(
    cluster: LocalCluster, scratch: pathlib.Path, throws: str
) -> None:
    async with pen(cluster, scratch) as made:
        await check_herd(Herd(made, THROWS[throws], hook_ms=10_000), "failed")


@pytest.mark.parametrize("evils", [pytest.param(ASLEEP, id="asleep"), pytest.param(BUSY, id="busy")])
async def test_whatever_hangs_wherever_ends_by_its_deadline(
    cluster: LocalCluster, scratch: pathlib.Path, evils: tuple[Evil, ...]
) -> None:
    flags = {"modules__load_timeout_seconds": 5, "modules__leak_grace_seconds": 1}
    async with pen(cluster, scratch, **flags) as made:
        await check_herd(Herd(made, *evils, hook_ms=HANG_MS), "overrun")
