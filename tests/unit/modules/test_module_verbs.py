"""The verbs of modules are one table: the API and the command line have each of them, and no other."""

from __future__ import annotations

import pytest

from corral.cli.module.commands import module
from corral.controller.http.resources.modules import module_verbs, modules
from corral.controller.http.resources.modules.module_schemas import ONE
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.verbs import VERBS, Verb

WORDS = {Verb.CONFIGURE: "config"}
"""Where the word is not the verb's own."""


def test_every_verb_has_its_rule():
    assert list(VERBS) == list(Verb)


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.UNINSTALL])
def test_the_api_has_every_verb(verb):
    path = f"{ONE}/{WORDS.get(verb, verb)}"
    (route,) = (each for each in module_verbs.ROUTES if each.path == path and each.method != "GET")
    assert route.summary == VERBS[verb].summary


def test_the_api_uninstalls_by_the_table():
    (route,) = (each for each in modules.ROUTES if each.path == ONE and each.method == "DELETE")
    assert route.summary == VERBS[Verb.UNINSTALL].summary


@pytest.mark.parametrize("verb", Verb)
def test_the_command_line_has_every_verb(verb):
    assert module.commands[WORDS.get(verb, verb)].help == VERBS[verb].help


def test_what_shall_not_run_is_no_failure_when_it_does_not():
    for rule in VERBS.values():
        assert rule.runs == (rule.intent in (None, ModuleIntent.ACTIVE))
