"""The documents agree with each other and with the code they describe."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import pathlib
import re
import shlex
from collections.abc import Iterator
from types import MemberDescriptorType as Slot
from types import ModuleType

import click
import pytest

import corral.sdk
from corral.cli.main import cli
from corral.sdk import ModuleContext

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
HANDS_ON = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((DOCS / "guides").glob("*.md"))]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", flags=re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```$", flags=re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.+)$", flags=re.M)


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_say_what_the_code_says(generator: ModuleType) -> None:
    assert generator.stale() == [], "run `make docs`"


def test_the_index_of_the_reference_names_every_page(generator: ModuleType) -> None:
    named = set(LINK.findall((DOCS / "reference" / "README.md").read_text()))
    assert named == set(generator.PAGES)


def test_the_page_of_the_sdk_has_every_name_and_every_member_of_it() -> None:
    text = (DOCS / "reference" / "sdk.md").read_text()
    sections = {
        block.partition("\n")[0]: block for block in re.split(r"^## ", FENCE.sub("", text), flags=re.M)[1:]
    }
    assert set(sections) == set(corral.sdk.__all__)
    for name, block in sections.items():
        value = getattr(corral.sdk, name)
        told = set(re.findall(r"^`(?:async )?(\w+)", block, flags=re.M))
        if inspect.isclass(value):
            assert public_members(value) <= told, f"{name} lacks {sorted(public_members(value) - told)}"


def test_every_member_of_a_module_s_context_is_explained(generator: ModuleType) -> None:
    members = generator.sdk_members(ModuleContext)
    assert {member.name for member in members} == public_members(ModuleContext)
    assert [member.name for member in members if not member.text] == []


def public_members(kind: type) -> set[str]:
    """What a class of the SDK has, by what it is and not by how it is written down."""
    own = [each for each in kind.__mro__ if each.__module__.startswith("corral.sdk.")]
    said = {name for each in own for name in getattr(each, "__annotations__", {})}
    had = {name for each in own for name, value in vars(each).items() if not isinstance(value, Slot)}
    return {name for name in said | had if not name.startswith("_")}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_leads_somewhere(path: pathlib.Path, generator: ModuleType) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        file, _, heading = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.is_file() or (heading and heading not in anchors(found, generator)):
            broken.append(target)
    assert not broken


@functools.cache
def anchors(path: pathlib.Path, generator: ModuleType) -> set[str]:
    return {generator.anchor(heading) for heading in HEADING.findall(FENCE.sub("", path.read_text()))}


def test_every_decision_is_numbered_without_a_hole_and_in_the_index() -> None:
    decisions = sorted((DOCS / "adr").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    index = (DOCS / "adr" / "README.md").read_text()
    for path in decisions:
        number, title = re.fullmatch(r"# (\d{4})\. (.+)", path.read_text().splitlines()[0]).groups()
        assert number == path.name[:4]
        assert f"| {number} | [{title}]({path.name}) |" in index


@pytest.mark.parametrize("path", sorted((DOCS / "adr").glob("[0-9]*.md")), ids=name_of)
def test_a_decision_has_its_three_parts(path: pathlib.Path) -> None:
    assert re.findall(r"^## (.+)$", path.read_text(), flags=re.M) == ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize("path", HANDS_ON, ids=name_of)
def test_pages_for_hands_name_only_targets_that_the_makefile_has(path: pathlib.Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = {target for line in commands(path) for target in re.findall(r"^make ([a-z]+)", line)}
    assert named <= targets


@pytest.mark.parametrize("path", HANDS_ON, ids=name_of)
def test_pages_for_hands_name_only_commands_and_flags_that_exist(path: pathlib.Path) -> None:
    problems = [
        problem for line in commands(path) if (found := corral_words(line)) for problem in wrong_in(found)
    ]
    assert not problems


def commands(path: pathlib.Path) -> Iterator[str]:
    """Every command of a page: the lines of its shell blocks, and what stands in backquotes."""
    text = path.read_text()
    for block in SHELL.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from INLINE.findall(FENCE.sub("", text))


def corral_words(line: str) -> list[str] | None:
    """The words after `corral`, without settings of the environment before it; None for others."""
    words = shlex.split(line, comments=True) if "corral" in line else []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return words[1:] if words[:1] == ["corral"] and len(words) > 1 else None


def wrong_in(words: list[str]) -> list[str]:
    """What of this command line does not exist."""
    command: click.Command = cli
    ctx = click.Context(cli, info_name="corral")
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        if rest[0].startswith("-"):
            break  # an option of the group itself
        name = rest.pop(0)
        child = command.get_command(ctx, name)
        if child is None:
            return [f"{ctx.command_path} {name}"]
        command, ctx = child, click.Context(child, info_name=name, parent=ctx)
    known = {option for parameter in command.get_params(ctx) for option in parameter.opts}
    flags = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    return [f"{ctx.command_path} {flag}" for flag in flags if flag not in known]
