"""The suite lives in the package, for other runtimes to join; its assertions speak all the same."""

from __future__ import annotations

import pytest

from corral.testing.runtime_nodes import CGROUP_KINDS

pytest.register_assert_rewrite("corral.testing.runtime_contract")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every runtime goes through every kind of control groups that this machine has. `make test` takes the kinds
    that its class names, and only the first of them where the kind makes no difference."""
    if metafunc.cls is None or "cgroups" not in metafunc.fixturenames:
        return
    often = metafunc.cls.kinds
    if not metafunc.definition.get_closest_marker("control_groups"):
        often = often[:1]
    kinds = [pytest.param(kind, marks=[] if kind in often else pytest.mark.system) for kind in CGROUP_KINDS]
    metafunc.parametrize("cgroups", kinds)
