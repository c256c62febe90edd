"""Any sequence of template changes, edits, values and starts leaves a static world as the rule says."""

from __future__ import annotations

import asyncio
import pathlib
import shutil
import tempfile
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from prepare_bench import Bench, plan_of, tree_of

from corral.daemon.workload.start_stages import StartProgress

PATHS = st.sampled_from(["a", "b.conf", "sub/c.conf"])
TEXTS = st.sampled_from([b"1", b"2", b"port=%PORT%", b"pw=%PW%", b"both=%PORT%%PW%"])
VALUES = st.sampled_from(["1", "2", "3"])
FILLED = ".conf"


class Laid:
    """What the model knows of a path: the template and the values in the file, and the file as it was laid."""

    def __init__(self, source: object, body: bytes | None) -> None:
        self.source = source
        self.body = body


class StaticWorld(RuleBasedStateMachine):
    """A world, and what the rule makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="corral-rule-", dir="/dev/shm"))
        self.runner = asyncio.Runner()
        self.bench = self.runner.run(self.opened())
        self.templates: dict[str, bytes] = {}
        self.values = {"PORT": "1", "PW": "1"}
        self.incarnation = 0
        self.disk: dict[str, bytes] = {}
        self.laid: dict[str, Laid] = {}
        self.seeded = False

    async def opened(self) -> Bench:
        return Bench(self.root / "data")

    def teardown(self) -> None:
        self.runner.run(self.bench.warm.close())
        self.runner.close()
        shutil.rmtree(self.root)

    @initialize(files=st.dictionaries(PATHS, TEXTS, min_size=1))
    def seed(self, files: dict[str, bytes]) -> None:
        self.templates = dict(files)

    @rule(path=PATHS, text=TEXTS)
    def change_template(self, path: str, text: bytes) -> None:
        self.templates[path] = text

    @precondition(lambda self: len(self.templates) > 1)
    @rule(data=st.data())
    def drop_from_template(self, data: Any) -> None:
        del self.templates[data.draw(st.sampled_from(sorted(self.templates)))]

    @rule(name=st.sampled_from(["PORT", "PW"]), value=VALUES)
    def change_value(self, name: str, value: str) -> None:
        self.values[name] = value

    @precondition(lambda self: self.seeded)
    @rule(path=PATHS, body=st.sampled_from([b"mine", b"1", b"port=1"]))
    def edit(self, path: str, body: bytes) -> None:
        place = self.root / "data/static/one" / path
        place.parent.mkdir(exist_ok=True)
        if path not in self.disk:
            place.touch(mode=0o644)
        place.write_bytes(body)
        self.disk[path] = body

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        path = data.draw(st.sampled_from(sorted(self.disk)))
        (self.root / "data/static/one" / path).unlink()
        del self.disk[path]

    @rule()
    def start(self) -> None:
        self.incarnation += 1024
        kept = self.start_by_the_rule()
        self.runner.run(self.start_really())
        assert tree_of(self.root / "data/static/one") == self.disk
        assert self.bench.progress.kept_files.keys() == kept

    async def start_really(self) -> None:
        self.bench.progress = StartProgress()
        template = self.bench.cache.template("t", self.templates)
        plan = plan_of(templates=(template,), static=True, substitute=(f"**/*{FILLED}", f"*{FILLED}"))
        await self.bench.make(plan, incarnation=self.incarnation, secret=("PW",), **self.values)

    def start_by_the_rule(self) -> set[str]:
        """What it makes of the model; returns what is kept."""
        kept = set()
        for path in self.laid.keys() - self.templates.keys():
            if self.seeded and isinstance(self.laid[path].source, tuple) and self.laid[path].source[1]:
                self.laid[
                    path
                ].source = None  # what no template has any more is laid anew when one has it again
        for path, text in self.templates.items():
            source, made = (text, self.values_in(path, text)), self.filled(path, text)
            known = self.laid.get(path)
            if known is not None and known.source in (source, (text, "gone")):
                continue
            if path not in self.disk:
                if known is None or known.body is None:
                    self.disk[path] = made
                    self.laid[path] = Laid(source, made)
                else:
                    self.laid[path] = Laid((text, "gone"), known.body)
                    kept.add(path)
            elif (known is not None and self.disk[path] == known.body) or self.disk[path] == made:
                self.disk[path] = made
                self.laid[path] = Laid(source, made)
            else:
                kept.add(path)
                self.laid.setdefault(path, Laid(None, None))
        self.seeded = True
        return kept

    def filled(self, path: str, text: bytes) -> bytes:
        for name, value in self.values_in(path, text).items():
            text = text.replace(f"%{name}%".encode(), value.encode())
        return text

    def values_in(self, path: str, text: bytes) -> dict[str, str]:
        if not path.endswith(FILLED):
            return {}
        return {name: value for name, value in self.values.items() if f"%{name}%".encode() in text}


TestStaticWorld = StaticWorld.TestCase
TestStaticWorld.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
