"""Tasks are begun in `system/aio` or in a task group, and nowhere else; ruff refuses what it can name, this the rest."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROOMS = ROOT / "src" / "corral"
EXEMPT = ("system/aio", "sdk", "demo", "testing/runtime_contract")
"""The room itself, what is shipped alone, and tests."""
NAMES = ("create_task", "ensure_future")


def task_groups(tree: ast.AST) -> set[str]:
    """What the file calls its task groups: `async with asyncio.TaskGroup() as NAME`."""
    return {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
        and ast.unparse(item.context_expr) == "asyncio.TaskGroup()"
    }


def bare_tasks(source: str) -> list[int]:
    """The lines that begin a task by a method of a loop, or of anything else that is no task group."""
    if not any(name in source for name in NAMES):
        return []
    tree = ast.parse(source)
    groups = task_groups(tree)
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value) not in groups
    ]


def test_no_task_is_begun_without_an_owner() -> None:
    found = []
    for path in sorted(ROOMS.rglob("*.py")):
        name = path.relative_to(ROOMS).as_posix()
        if not name.startswith(EXEMPT):
            found += [f"{name}:{line}" for line in bare_tasks(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "asyncio.create_task(work())",
        "asyncio.ensure_future(work())",
        "asyncio.get_running_loop().create_task(work())",
        "self._loop.create_task(work())",
        "begin = loop.create_task",
    ],
)
def test_a_bare_task_is_found(planted) -> None:
    assert bare_tasks(planted) == [1]


def test_a_task_group_is_an_owner() -> None:
    source = (
        "async def all():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(work())\n"
    )
    assert bare_tasks(source) == []
