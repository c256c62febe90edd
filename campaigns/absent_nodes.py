"""The campaign of deployments while nodes are away: random histories of the real reconciler on the simulator. Nodes are cut off
and lose their power, and come back; versions are deployed that start and that do not, groups are restarted, deployments are
paused, promoted, taken back and cancelled, and leaders change.

`python -m campaigns.absent_nodes --histories 200 --seed 1`. Ends with 1 when a rule was broken. A history is repeated alone by
`--histories 1` and its own seed, which is printed with it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog
import yaml

from campaigns.absence_rules import AbsenceRules
from corral.controller.instances import deployments, group_changes, instance_changes
from corral.domain.groups.instance_records import live
from corral.errors import Rejected
from corral.simulation.scenario_files import scenario_in
from corral.simulation.simulation import Simulation

Fields = dict[str, Any]
EVENTFUL_SECONDS: Final = 3600
"""After that all nodes stay, nobody plays, and the last versions are good ones."""
_CALM_SECONDS: Final = 7200
_LAST_ORDERS: Final = (4000, 5000, 6000, 7500, 9000)
_SEED_STEP: Final = 1_000_003
GROUPS: Final[dict[str, Fields]] = {
    "world": {"static": True},
    "vault": {"static": True, "disconnect": {"replace_after_seconds": None}},
    "lobby": {"disconnect": {"replace_after_seconds": None}},
    "hall": {"disconnect": {"replace_after_seconds": 60}},
}


class AbsenceHistory:
    """One history, all of whose choices come from one seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - a model, and to be repeatable
        body = self._scenario(seed)
        self._run = Simulation(scenario_in(yaml.safe_dump(body), file=f"history-{seed}.yaml"))
        deployed = [each for each in body["faults"] if "deploy" in each]
        bad = {number for number, each in enumerate(deployed, 1) if each["boot"]["crash"]}
        self.rules = AbsenceRules(self._run, bad)
        moments = sorted(self._dice.uniform(60, EVENTFUL_SECONDS) for _ in range(self._dice.randint(0, 12)))
        self._orders: list[tuple[float, Callable[[], None]]] = [(at, self._order) for at in moments]
        self._orders += [(float(at), self._open_everything) for at in _LAST_ORDERS]
        self.orders: collections.Counter[str] = collections.Counter()

    # what happens

    def _scenario(self, seed: int) -> Fields:
        dice = self._dice
        names = dice.sample(sorted(GROUPS), dice.randint(1, 3))
        nodes = dice.randint(1, 3)
        faults = [fault for _ in range(dice.randint(2, 8)) for fault in self._fault(names, nodes)]
        last = [
            {"at": f"{EVENTFUL_SECONDS}s", "deploy": name, "boot": {"seconds": [1, 9], "crash": 0}}
            for name in names
        ]
        return {
            "run": {"seed": seed, "for": f"{EVENTFUL_SECONDS + _CALM_SECONDS}s"},
            "nodes": [{"id": "n", "count": nodes, "memory_mb": 8192, "cpus": 16}],
            "groups": [self._group(name) for name in names],
            "boot": {name: {"seconds": [1, 9], "crash": 0} for name in names},
            "load": {
                name: {
                    "points": [[f"{at}s", dice.randint(0, 25)] for at in range(0, EVENTFUL_SECONDS, 900)]
                    + [[f"{EVENTFUL_SECONDS}s", 0]]
                }
                for name in names
                if dice.random() < 0.3
            },
            "faults": sorted((*faults, *last), key=lambda each: int(each["at"][:-1])),
        }

    def _fault(self, names: Sequence[str], nodes: int) -> list[Fields]:
        """A node that is away for a while, mostly with a deployment meanwhile."""
        dice = self._dice
        at = dice.randrange(60, EVENTFUL_SECONDS - 1200)
        lasts = dice.choice((4, 20, 55, 75, 200, 900))
        found: list[Fields] = []
        for number in range(1, nodes + 1):
            if dice.random() < 0.6:
                kind = dice.choice(("cut", "cut", "kill"))
                found.append({"at": f"{at}s", kind: f"n-{number}", "for": f"{lasts}s"})
        if dice.random() < 0.15:
            found.append({"at": f"{at + dice.randrange(lasts + 60)}s", "leader": "change"})
        for name in names:
            if dice.random() < 0.7:
                boot = {"seconds": [1, 9], "crash": dice.choice((0, 0, 1))}
                found.append({"at": f"{at + dice.randrange(-20, 120)}s", "deploy": name, "boot": boot})
        return found

    def _group(self, name: str) -> Fields:
        dice = self._dice
        static = bool(GROUPS[name].get("static"))
        update: Fields = {
            "strategy": dice.choice(("rolling", "rolling", "canary")),
            "canary_seconds": dice.choice((0, 20)),
            "promote": dice.choice(("auto", "auto", "manual")),
            "min_healthy_seconds": dice.choice((0, 5)),
            "progress_seconds": dice.choice((60, 200)),
            "max_failures": dice.choice((1, 3)),
            "auto_rollback": dice.random() < 0.8,
            "drain_seconds": dice.choice((None, 0, 30)),
            "max_unavailable": dice.choice((None, 1, 2)),
        }
        if not static:
            update["max_surge"] = dice.choice((None, 2))
        return {
            "name": name,
            "command": ["serve"],
            "memory_mb": 64,
            "min": dice.randint(1, 5),
            "max_players": 10,
            "restart": {"attempts": 0},
            "crash_loop": {"failures": 1000},
            "update": update,
            **GROUPS[name],
        }

    def _order(self) -> None:
        verb = self._dice.choice(
            ("restart", "roll_back", "cancel", "pause", "resume", "promote", "min", "stop", "hold", "release")
        )
        name = self._dice.choice(sorted(self.rules.groups))
        try:
            self._do(name, verb)
            self.orders[verb] += 1
        except Rejected as refused:
            self.orders[f"{verb} {refused.code.name}"] += 1

    def _do(self, name: str, verb: str) -> None:
        controller = self._run.controller
        ws = controller.workspace("the campaign")
        group = ws.require_group(name)
        match verb:
            case "restart":
                deployments.restart_revision(ws, name, by="ada")
            case "min":
                group_changes.patch_group(ws, name, {"min": self._dice.randint(1, 5)})
            case "hold":
                group_changes.hold_group(ws, name, by="ada", reason="campaign", when_empty=False)
            case "release":
                group_changes.release_group(ws, name, by="ada")
            case "stop":
                ids = sorted(each.id for each in ws.instances_of(name) if live(each.state))
                if ids:
                    instance_changes.stop_instance(ws, self._dice.choice(ids), reason="campaign")
            case _ if group.deployment:
                getattr(deployments, f"{verb}_deployment")(ws, group.deployment, by="ada")
        controller.commit(ws.steps())

    def _open_everything(self) -> None:
        """Nothing that an operator has ordered holds anything up any longer."""
        for name in sorted(self.rules.groups):
            for verb in ("release", "resume", "promote"):
                with contextlib.suppress(Rejected):
                    self._do(name, verb)
            for each in self._run.controller.workspace("the campaign").instances_of(name):
                if each.held:
                    ws = self._run.controller.workspace("the campaign")
                    with contextlib.suppress(Rejected), self.rules.by_hand():
                        instance_changes.restart_instance(ws, each.id, reason="")
                        self._run.controller.commit(ws.steps())

    # the run

    def run(self) -> list[str]:
        """Go through it; what was violated."""
        run, going_on = self._run, True
        while going_on and not self.rules.violations:
            run.act()
            while self._orders and run.clock.monotonic() >= self._orders[0][0]:
                self._orders.pop(0)[1]()
                run.act()
            self.rules.look()
            going_on = run.advance()
        if not self.rules.violations:
            self.rules.at_the_end()
        return self.rules.violations


def histories(count: int, seed: int) -> tuple[list[str], collections.Counter[str]]:
    """So many histories; what was violated, with the seed of each, and what was seen."""
    violations: list[str] = []
    seen: collections.Counter[str] = collections.Counter()
    for number in range(count):
        own = seed + number * _SEED_STEP
        history = AbsenceHistory(own)
        violations += [f"seed {own}: {each}" for each in history.run()]
        seen += history.rules.seen + history.orders
    return violations, seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(f"seed {asked.seed}, {asked.histories} histories", flush=True)
    violations, seen = histories(asked.histories, asked.seed)
    print(f"seen {dict(sorted(seen.items()))}")
    for each in violations:
        print(f"VIOLATION {each}")
    print(f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
